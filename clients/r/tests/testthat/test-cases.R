# Random models and rows that the Python package scored; BLINDBAYES_CASES names the folder (tests/clients/test_r.py makes it).

column_of <- function(stated) {
  values <- lapply(stated$values, function(each) if (is.null(each)) NA else each)
  values <- unlist(values)
  switch(stated$type,
    character = as.character(values),
    factor = factor(as.character(values)),
    double = as.numeric(values),
    integer = as.integer(values),
    logical = as.logical(values)
  )
}

test_that("random models classify as in Python, to 1e-12", {
  folder <- Sys.getenv("BLINDBAYES_CASES")
  skip_if(folder == "", "BLINDBAYES_CASES is not set")
  cases <- list.dirs(folder, recursive = FALSE)
  expect_gt(length(cases), 0)
  for (case in cases) {
    model <- read_model(file.path(case, "model.json"))
    stated <- jsonlite::fromJSON(file.path(case, "rows.json"), simplifyVector = FALSE)
    rows <- as.data.frame(lapply(stated$columns, column_of), stringsAsFactors = FALSE, optional = TRUE)
    names(rows) <- names(stated$columns)
    joint <- matrix(vapply(unlist(stated$joint, recursive = FALSE), function(x) if (is.null(x)) -Inf else x, 0),
      nrow = nrow(rows), byrow = TRUE
    )
    made <- suppressWarnings(predict(model, rows, type = "joint")) # of values that the codebook does not have
    expect_identical(is.finite(unname(made)), is.finite(joint), label = case)
    off <- abs(unname(made) - joint)[is.finite(joint)]
    expect_lt(max(off / pmax(1, abs(joint[is.finite(joint)]))), 1e-12, label = case)
    prob <- matrix(unlist(stated$prob), nrow = nrow(rows), byrow = TRUE)
    # An error of 1e-12 of a joint score is an error of 1e-12 times the score in a probability.
    expect_lt(max(abs(unname(suppressWarnings(predict(model, rows, type = "prob"))) - prob)), 1e-12 * max(1, max(abs(joint[is.finite(joint)]))),
      label = case
    )
    expect_identical(as.character(suppressWarnings(predict(model, rows))), unlist(stated$class), label = case)
    shown <- suppressWarnings(explain(model, rows))
    expect_identical(shown$part, rep(unlist(stated$parts), nrow(rows)), label = case)
    terms <- vapply(unlist(stated$terms, recursive = FALSE), function(x) if (is.null(x)) -Inf else x, 0)
    off <- abs(as.vector(t(as.matrix(shown[model$classes]))) - terms)
    expect_lt(max(off[is.finite(terms)] / pmax(1, abs(terms[is.finite(terms)]))), 1e-12, label = case)
    held <- coef(model)[-1]
    expect_identical(lapply(held, colnames)[lengths(stated$cells) > 0], lapply(stated$cells[lengths(stated$cells) > 0], unlist),
      label = case
    )
  }
})
