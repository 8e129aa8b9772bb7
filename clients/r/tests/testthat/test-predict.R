model_text <- '{
  "format": "blindbayes.naive_bayes/1",
  "codebook": {"target": "y", "classes": ["a", "b"], "missing": ["unknown"], "features": [
    {"kind": "categorical", "name": "c", "values": ["1", "true", "x"], "optional": true},
    {"kind": "numeric", "name": "n", "low": 0, "high": 10, "precision": 0.5},
    {"kind": "numeric", "name": "b", "low": 0, "high": 9, "bins": 5},
    {"kind": "text", "name": "t", "words": ["free", "win"], "optional": true}]},
  "codebook_sha256": "",
  "parameters": {"log_prior": [-1, -0.5], "terms": {
    "c": {"log_prob": [[-1, -2, -3], [-3, -2, -1]]},
    "n": {"mean": [1, 2], "variance": [1, 4]},
    "b": {"log_prob": [[-1, -2, -3, -4, -5], [-5, -4, -3, -2, -1]]},
    "t": {"log_prob": [[-0.1, -2], [-3, -0.2]]}}},
  "privacy": null}'

row <- function(c = "x", n = 1, b = 0, t = NA_character_) data.frame(c = c, n = n, b = b, t = t)

test_that("scores are the prior and one term per feature", {
  model <- parse_model(model_text)
  expected_a <- -1 - 3 - 0.5 * log(2 * pi) - 1
  expected_b <- -0.5 - 1 - 0.5 * log(2 * pi * 4) - 0.5 * (1 - 2)^2 / 4 - 5
  expect_equal(unname(predict(model, row(), type = "joint")), matrix(c(expected_a, expected_b), 1), tolerance = 1e-14)
  expect_equal(rowSums(predict(model, row(), type = "prob")), 1, tolerance = 1e-14)
})

test_that("a category is the same as text, number and truth value", {
  model <- parse_model(model_text)
  of <- function(value) predict(model, row(c = value), type = "joint")
  expect_equal(of("1"), of(1))
  expect_equal(of("1.0"), of(1L))
  expect_equal(of("True"), of(TRUE))
  expect_equal(of(factor("x")), of("x"))
  expect_equal(of("unknown"), of(NA_character_))
  expect_warning(unlisted <- of("not listed"), "feature .c.: 1 row holds a value that the codebook does not list")
  expect_equal(unlisted, of(NA))
  expect_silent(of("unknown"))
})

test_that("numbers are rounded to the grid and clamped, and missing ones add nothing", {
  model <- parse_model(model_text)
  of <- function(...) predict(model, row(...), type = "joint")
  expect_equal(of(n = 1.2), of(n = 1))
  expect_warning(clamped <- of(n = 1e300), "feature .n.: 1 row holds a number out of bounds .0, 10.")
  expect_equal(clamped, of(n = 10))
  expect_silent(of(n = 10.2)) # rounds to the bound
  expect_equal(of(n = " 1.0 "), of(n = 1))
  expect_equal(of(n = NA), of(n = "unknown"))
  expect_equal(of(b = 1), of(b = 0))
  expect_equal(of(b = 8), of(b = 9))
  expect_error(of(n = "many"), "1 row holds a text")
  expect_error(of(n = TRUE), "truth values")
})

test_that("infinity is no number, as in a file that Python reads", {
  model <- parse_model(model_text)
  file <- tempfile(fileext = ".csv")
  writeLines(c("c,n,b,t", "x,Inf,0,free", "x,-Inf,0,free"), file)
  expect_error(predict(model, read.csv(file)), "2 rows hold infinity")
  expect_error(predict(model, row(b = Inf)), "1 row holds infinity")
  expect_warning(expect_length(predict(model, row(c = Inf)), 1), "does not list")
})

test_that("parts of a row add up to its scores", {
  model <- parse_model(model_text)
  rows <- rbind(row(), row(c = "1", n = NA, t = "free win"))
  shown <- explain(model, rows)
  expect_identical(shown$part, rep(c("(prior)", "c", "n", "b", "t", "(sum)"), 2))
  joint <- predict(model, rows, type = "joint")
  for (at in 1:2) {
    own <- shown[shown$row == at, ]
    expect_equal(unlist(own[own$part == "(sum)", c("a", "b")]), joint[at, ], tolerance = 1e-14)
    expect_equal(colSums(own[own$part != "(sum)", c("a", "b")]), joint[at, ], tolerance = 1e-14)
  }
  expect_equal(unlist(shown[9, c("a", "b")], use.names = FALSE), c(0, 0)) # a missing number
  expect_identical(nrow(explain(model, rows[0, ])), 0L)
  expect_error(explain(model, cbind(rows, id = 7)), "does not have: .id.")
  expect_length(capture_warnings(explain(model, row(n = 70))), 1)
})

test_that("coefficients are a table per feature, with a row per class", {
  held <- coef(parse_model(model_text))
  expect_identical(names(held), c("(prior)", "c", "n", "b", "t"))
  expect_identical(held$`(prior)`["b", "log_share"], -0.5)
  expect_identical(held$c["a", "true"], -2)
  expect_identical(held$n["b", ], c(mean = 2, variance = 4))
  expect_identical(colnames(held$b), c("0 to 1", "2 to 3", "4 to 5", "6 to 7", "8 to 9"))
  expect_identical(held$t["b", "win"], -0.2)
})

test_that("words of a document count", {
  model <- parse_model(model_text)
  of <- function(text) predict(model, row(t = text), type = "joint") - predict(model, row(), type = "joint")
  expect_equal(unname(of("Free, free WIN a other")), matrix(c(-2.2, -6.2), 1))
  expect_equal(unname(of("nothing")), matrix(0, 1, 2))
})

test_that("capitals become the small letters of Unicode", {
  skip_if_not(l10n_info()[["UTF-8"]])
  lower <- function(text) lower_case(text, "t")
  expect_equal(lower(c("FREE \u00dcBER", "\u039f\u0394\u039f\u03a3")), c("free \u00fcber", "\u03bf\u03b4\u03bf\u03c2"))
  expect_equal(lower("\u03a3\u0391\u03a3, A\u03a3'B"), "\u03c3\u03b1\u03c2, a\u03c3'b")
  expect_equal(lower("\u0130x"), "i\u0307x")
})

in_c_locale <- function(code) {
  before <- Sys.getlocale("LC_CTYPE")
  on.exit(Sys.setlocale("LC_CTYPE", before))
  Sys.setlocale("LC_CTYPE", "C")
  code()
}

test_that("a locale that does not know a letter is refused, not guessed", {
  wrong <- in_c_locale(function() tryCatch(lower_case("\u00dcBER", "t"), error = conditionMessage))
  expect_match(wrong, "LC_CTYPE")
  expect_equal(in_c_locale(function() lower_case("FREE", "t")), "free")
})

test_that("a decimal in a text is the number nearest to it", {
  expect_identical(as_numbers(c("29713.287284", "-1.005", "+.5", "7", "1e3")), c(29713287284 / 1e6, -1005 / 1e3, 0.5, 7, 1000))
})

test_that("a class that reads its numbers otherwise is refused, and labels are no hindrance", {
  model <- parse_model(model_text)
  expect_error(predict(model, row(n = structure(1, class = "integer64"))), "integer64")
  labelled <- structure(1, labels = c(low = 1), class = c("haven_labelled", "vctrs_vctr", "double"))
  frame <- row()
  frame$n <- labelled
  frame$c <- labelled
  expect_equal(predict(model, frame, type = "joint"), predict(model, row(c = "1", n = 1), type = "joint"))
})

test_that("text of unknown encoding is refused without being shown", {
  model <- parse_model(model_text)
  for (odd in c("free \xff\xfe", "gr\xc3\xb6\xdf")) {
    for (wrong in list(
      tryCatch(predict(model, row(t = odd)), error = conditionMessage),
      in_c_locale(function() tryCatch(predict(model, row(c = odd)), error = conditionMessage))
    )) {
      expect_match(wrong, "unknown encoding")
      expect_false(grepl("free|gr", wrong))
    }
  }
})

test_that("columns that are missing or unknown are named", {
  model <- parse_model(model_text)
  expect_error(predict(model, data.frame(c = "x", n = 1)), "missing: .b., .t.")
  expect_error(predict(model, cbind(row(), id = 7)), "does not have: .id.")
  expect_equal(
    predict(model, cbind(row(), id = 7), extra_columns = "ignore"),
    predict(model, cbind(row(), y = "a"))
  )
  expect_error(predict(model, list()), "data frame")
  expect_error(predict(model, cbind(row(), row()["n"])), "twice in newdata: .n.")
  expect_warning(predict(model, row(), tpye = "prob"), "tpye")
})

test_that("a file that is no model is refused", {
  expect_error(parse_model("{}"), "not of format")
  expect_error(parse_model("no"), "not JSON")
  expect_error(read_model(tempfile()), "does not exist")
  expect_error(parse_model(sub('"mean": [1, 2]', '"mean": [1]', model_text, fixed = TRUE)), "do not fit")
  for (prior in c("[-1]", "[-1, \"x\"]", "[-1, 2]", "[null, null]")) {
    expect_error(parse_model(sub("[-1, -0.5]", prior, model_text, fixed = TRUE)), "prior")
  }
})

test_that("parameters that give no probability are refused when the file is read", {
  damaged <- function(before, after) {
    text <- sub(before, after, model_text, fixed = TRUE)
    expect_false(identical(text, model_text))
    expect_error(parse_model(text), "feature .[cnbt].: the parameters in the model file do not fit")
  }
  for (variance in c("[0, 4]", "[1, -4]", "[null, 4]", "[\"one\", 4]")) damaged("[1, 4]", variance)
  for (table in c("[1, -2, -3]", "[-1]", "[-1, null, -3]", "[-1, \"x\", -3]")) damaged("[-1, -2, -3]", table)
  for (mean in c("[null, 2]", "[\"one\", 2]")) damaged("[1, 2]", mean)
  certain <- sub("[-0.1, -2]", "[0, -2]", model_text, fixed = TRUE)
  expect_length(parse_model(certain)$classes, 2)
  once <- sub('"name": "t"', '"name": "t", "model": "bernoulli"', certain, fixed = TRUE)
  expect_error(parse_model(once), "feature .t.")
})

test_that("a frame without rows has no classes", {
  model <- parse_model(model_text)
  expect_silent(none <- predict(model, row()[0, ]))
  expect_identical(none, factor(character(), levels = c("a", "b")))
  expect_identical(dim(predict(model, row()[0, ], type = "prob")), c(0L, 2L))
})

test_that("printing shows classes and privacy", {
  expect_output(print(parse_model(model_text)), "not differentially private")
})

test_that("columns that R renamed are named with the option that keeps their names", {
  model <- parse_model(gsub('"n"', '"a/n"', model_text, fixed = TRUE))
  frame <- row()
  names(frame)[2] <- "a.n"
  expect_error(predict(model, frame), "check.names = FALSE", fixed = TRUE)
  names(frame)[2] <- "a/n"
  expect_length(predict(model, frame), 1)
  expect_error(predict(model, as.matrix(frame)), "as.data.frame", fixed = TRUE)
})

test_that("a release folder is read as its model, and a summary is short", {
  folder <- tempfile()
  dir.create(folder)
  writeLines(model_text, file.path(folder, "model.json"))
  expect_output(summary(read_model(folder)), "classifier of y")
})
