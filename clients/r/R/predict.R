predict.bb_model <- function(object, newdata, type = c("class", "prob", "log_prob", "joint"),
                             extra_columns = c("refuse", "ignore"), ...) {
  type <- match.arg(type)
  chkDots(...)
  require_columns(object, newdata, match.arg(extra_columns))
  scores <- matrix(rep(object$log_prior, each = nrow(newdata)), nrow(newdata), length(object$classes))
  for (name in names(object$features)) {
    scores <- scores + scores_of(object$features[[name]], object$terms[[name]], newdata[[name]])
  }
  colnames(scores) <- object$classes
  if (type == "joint") {
    return(scores)
  }
  if (type == "class") {
    return(factor(object$classes[max.col(scores, ties.method = "first")], levels = object$classes))
  }
  top <- do.call(pmax, as.data.frame(scores))
  normalised <- scores - (top + log(rowSums(exp(scores - top))))
  if (type == "prob") exp(normalised) else normalised
}

require_columns <- function(model, newdata, extra_columns) {
  if (!is.data.frame(newdata)) {
    stop("newdata must be a data frame; as.data.frame(newdata) makes one of a matrix", call. = FALSE)
  }
  absent <- setdiff(names(model$features), names(newdata))
  if (length(absent)) {
    renamed <- all(make.names(absent) %in% names(newdata))
    stop("columns of the codebook are missing: ", paste(sQuote(absent), collapse = ", "),
      if (renamed) "; R renamed them: read the table with read.csv(..., check.names = FALSE)",
      call. = FALSE
    )
  }
  twice <- intersect(names(newdata)[duplicated(names(newdata))], names(model$features))
  if (length(twice)) {
    stop("columns stand twice in newdata: ", paste(sQuote(twice), collapse = ", "), "; keep one of each", call. = FALSE)
  }
  extra <- setdiff(names(newdata), c(names(model$features), model$target))
  if (length(extra) && extra_columns == "refuse") {
    stop("columns that the codebook does not have: ", paste(sQuote(extra), collapse = ", "),
      "; drop them, or pass extra_columns = \"ignore\"",
      call. = FALSE
    )
  }
}

# ln P(value | class) of one column, (rows, classes); 0 where a value is missing.
scores_of <- function(feature, term, values) {
  if (feature$kind == "text") {
    return(word_scores(words_in(values, feature), term$log_prob, feature$model == "bernoulli"))
  }
  if (feature$kind == "categorical") {
    return(look_up(term$log_prob, positions(values, feature)))
  }
  points <- grid_points(numbers_in(values, feature), feature)
  if (!is.null(feature$bins)) {
    return(look_up(term$log_prob, cells_of(points, feature)))
  }
  numbers <- points / feature$step
  scores <- vapply(seq_along(term$mean), function(k) {
    if (is.infinite(term$variance[k])) {
      return(numeric(length(numbers)))
    }
    -0.5 * log(2 * pi * term$variance[k]) - 0.5 * (numbers - term$mean[k])^2 / term$variance[k]
  }, numeric(length(numbers)))
  scores <- matrix(scores, length(numbers), length(term$mean))
  scores[is.na(numbers), ] <- 0
  scores
}

look_up <- function(log_prob, cells) {
  scores <- t(log_prob[, cells, drop = FALSE])
  scores[is.na(cells), ] <- 0
  scores
}

word_scores <- function(bags, log_prob, once) {
  absent <- if (once) log1p(-exp(log_prob)) else 0
  base <- if (once) rowSums(absent) else 0
  rows <- lapply(bags, function(bag) {
    if (is.null(bag)) {
      return(numeric(nrow(log_prob)))
    }
    evidence <- (log_prob - absent)[, bag$words, drop = FALSE]
    base + as.vector(evidence %*% bag$times)
  })
  matrix(as.numeric(unlist(rows)), length(bags), nrow(log_prob), byrow = TRUE)
}
