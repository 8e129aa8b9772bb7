# What a model holds, and what each part of a row adds to its scores.

explain <- function(object, ...) UseMethod("explain")

# As Explanation.to_frame() in Python: per row the prior, a private model's offset, each feature, and their sum.
explain.bb_model <- function(object, newdata, extra_columns = c("refuse", "ignore"), ...) {
  chkDots(...)
  require_columns(object, newdata, match.arg(extra_columns))
  rows <- nrow(newdata)
  start <- list(`(prior)` = object$log_share)
  if (!is.null(object$privacy)) {
    start[["(offset)"]] <- object$log_prior - object$log_share
  }
  parts <- lapply(start, function(each) matrix(rep(each, each = rows), rows, length(each)))
  for (name in names(object$features)) {
    parts[[name]] <- scores_of(object$features[[name]], object$terms[[name]], newdata[[name]])
  }
  parts[["(sum)"]] <- Reduce(`+`, parts[names(object$features)], matrix(rep(object$log_prior, each = rows), rows, length(object$classes)))
  by_row <- rep(seq_len(rows), each = length(parts))
  terms <- do.call(rbind, parts)[(seq_along(parts) - 1) * rows + rep(seq_len(rows), each = length(parts)), , drop = FALSE]
  colnames(terms) <- object$classes
  data.frame(row = by_row, part = rep(names(parts), rows), terms, check.names = FALSE, stringsAsFactors = FALSE)
}

# A matrix per part with a row per class: the log of its share, log P(value | class), or mean and variance.
coef.bb_model <- function(object, ...) {
  share <- matrix(object$log_share, ncol = 1, dimnames = list(object$classes, "log_share"))
  c(list(`(prior)` = share), Map(table_of, object$features, object$terms, list(object$classes)))
}

table_of <- function(feature, term, classes) {
  made <- if (is.null(term$log_prob)) cbind(mean = term$mean, variance = term$variance) else term$log_prob
  rownames(made) <- classes
  if (!is.null(term$log_prob)) {
    colnames(made) <- switch(feature$kind,
      categorical = feature$values,
      numeric = cell_names(feature),
      text = if (is.null(feature$buckets)) feature$words
    )
  }
  made
}

# The first and last number of the grid in each histogram cell.
cell_names <- function(feature) {
  points <- feature$starts
  if (is.null(points)) {
    width <- feature$grid_high - feature$grid_low + 1
    points <- feature$grid_low + ceiling((seq_len(feature$bins) - 1) * width / feature$bins)
  }
  last <- c(points[-1] - 1, feature$grid_high)
  number <- function(point) format(point / feature$step, digits = 6, trim = TRUE)
  first <- vapply(points, number, "")
  ifelse(points == last, first, paste(first, "to", vapply(last, number, "")))
}
