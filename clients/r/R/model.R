# The model file: versioned JSON. Every part that prediction uses is checked when it is read.

model_format <- "blindbayes.naive_bayes/1"
rounding <- 1e-9 # by which the logarithm of a probability may pass 0

read_model <- function(path) {
  if (dir.exists(path)) {
    path <- file.path(path, "model.json") # a release folder
  }
  if (!file.exists(path)) {
    stop("model file ", sQuote(path), " does not exist", call. = FALSE)
  }
  text <- paste(readLines(path, warn = FALSE, encoding = "UTF-8"), collapse = "\n")
  parse_model(text)
}

parse_model <- function(text) {
  content <- tryCatch(
    jsonlite::fromJSON(text, simplifyVector = FALSE),
    error = function(problem) stop("the model file is not JSON", call. = FALSE)
  )
  if (!is.list(content) || !identical(content$format, model_format)) {
    stop("the model file is not of format ", model_format, call. = FALSE)
  }
  book <- content$codebook
  classes <- texts_of(book$classes)
  features <- lapply(book$features, feature_of, book = book)
  names(features) <- vapply(features, function(each) each$name, "")
  terms <- content$parameters$terms
  if (!setequal(names(terms), names(features))) {
    stop("the model file's parameters do not fit its codebook", call. = FALSE)
  }
  made <- list(
    target = book$target,
    classes = classes,
    features = features,
    log_prior = numbers_of(content$parameters$log_prior, -Inf),
    terms = lapply(features, function(each) term_of(each, terms[[each$name]], length(classes))),
    privacy = content$privacy,
    codebook_sha256 = content$codebook_sha256
  )
  prior <- made$log_prior
  if (length(prior) != length(classes) || anyNA(prior) || !any(is.finite(prior)) || any(prior > rounding)) {
    stop("the model file's prior does not fit its codebook", call. = FALSE)
  }
  made$log_share <- log_share_of(content, made$log_prior)
  structure(made, class = "bb_model")
}

# Log of the share of each class: by the noisy counts, if a private model has them; otherwise its prior.
log_share_of <- function(content, log_prior) {
  counts <- numbers_of(content$statistics$class_counts, 0)
  if (is.null(content$privacy) || length(counts) != length(log_prior)) {
    return(log_prior)
  }
  counts <- pmax(counts, 0.5)
  log(counts / sum(counts))
}

texts_of <- function(values) enc2utf8(vapply(values, as.character, ""))

# JSON has no infinity: null is the one infinity that is possible in its place. NaN where a value is no number.
numbers_of <- function(values, null) {
  vapply(values, function(each) if (is.null(each)) null else if (is.numeric(each)) as.numeric(each) else NaN, 0)
}

# NULL if the rows differ in length: rbind would repeat the shorter ones.
matrix_of <- function(rows) {
  if (length(unique(lengths(rows))) == 1) do.call(rbind, lapply(rows, numbers_of, null = NaN))
}

feature_of <- function(feature, book) {
  feature$markers <- unique(c("", texts_of(book$missing), texts_of(feature$missing)))
  if (identical(feature$kind, "categorical")) {
    feature$values <- texts_of(feature$values)
  } else if (identical(feature$kind, "numeric")) {
    feature <- with_grid(feature)
  } else if (identical(feature$kind, "text")) {
    feature$model <- if (is.null(feature$model)) "multinomial" else feature$model
    feature$words <- texts_of(feature$words)
  } else {
    stop("feature ", sQuote(feature$name), " is of a kind that this version does not know", call. = FALSE)
  }
  feature
}

term_of <- function(feature, term, classes) {
  wrong <- function() {
    stop("feature ", sQuote(feature$name), ": the parameters in the model file do not fit the codebook", call. = FALSE)
  }
  if (feature$kind == "numeric" && is.null(feature$bins)) {
    made <- list(mean = numbers_of(term$mean, NaN), variance = numbers_of(term$variance, Inf))
    infinite <- is.infinite(made$variance) # in all classes, if none has values
    if (length(made$mean) != classes || length(made$variance) != classes || any(!is.finite(made$mean))) wrong()
    if (anyNA(made$variance) || any(made$variance <= 0) || any(infinite) != all(infinite)) wrong()
    return(made)
  }
  cells <- switch(feature$kind,
    categorical = length(feature$values),
    numeric = feature$bins,
    text = if (is.null(feature$buckets)) length(feature$words) else feature$buckets
  )
  table <- matrix_of(term$log_prob)
  if (!identical(dim(table), as.integer(c(classes, cells))) || any(!is.finite(table))) wrong()
  if (any((if (identical(feature$model, "complement")) -table else table) > rounding)) wrong()
  if (identical(feature$model, "bernoulli") && any(table >= 0)) wrong()
  list(log_prob = table)
}

summary.bb_model <- function(object, ...) print(object)

print.bb_model <- function(x, ...) {
  cat("Naive Bayes classifier of ", x$target, " (", paste(x$classes, collapse = ", "), ")\n", sep = "")
  cat(length(x$features), "features:", paste(names(x$features), collapse = ", "), "\n")
  epsilon <- x$privacy$epsilon
  cat(if (is.null(epsilon)) "not differentially private\n" else paste0("differentially private, epsilon ", epsilon, "\n"))
  invisible(x)
}
