# The meaning of one cell of a table, the same as at the sites: 3, 3.0 and "3.0" are one category, TRUE and "True" another.

number_pattern <- "^[+-]?([0-9]{1,60}[.]?[0-9]{0,100}|[.][0-9]{1,100})([eE][+-]?[0-9]{1,2})?$"
truth_texts <- c(True = "true", "TRUE" = "true", False = "false", "FALSE" = "false")

# Numbers whose class is another reading of their bits or of their unit are not taken for numbers.
is_plain_number <- function(values) is.numeric(values) && !inherits(values, c("Date", "POSIXt", "difftime", "integer64"))

# Bytes that enc2utf8 would write out as "<fc>", and so take for another text.
is_unreadable <- function(texts) {
  locale <- l10n_info()
  guessed <- !locale[["UTF-8"]] && !locale[["Latin-1"]] && !locale[["MBCS"]]
  foreign <- guessed & Encoding(texts) == "unknown" & grepl("[\\x80-\\xff]", texts, perl = TRUE, useBytes = TRUE)
  !is.na(texts) & (foreign | !validEnc(texts))
}

# Texts of a column: NA where a value is missing.
plain_text <- function(values, name) {
  if (is.factor(values)) values <- as.character(values)
  if (is.character(values)) {
    values <- as.vector(values)
    if (any(is_unreadable(values))) {
      stop("column ", sQuote(name), " holds text of unknown encoding: read the table with encoding = \"UTF-8\"", call. = FALSE)
    }
    return(enc2utf8(values))
  }
  if (is.logical(values)) {
    return(ifelse(is.na(values), NA_character_, ifelse(values, "true", "false")))
  }
  if (!is_plain_number(values)) {
    stop("column ", sQuote(name), " has a type that is neither text, number nor truth value (",
      class(values)[1], "): convert it, for example by as.numeric()",
      call. = FALSE
    )
  }
  values <- as.vector(unclass(values)) # codes without labels
  texts <- rep(NA_character_, length(values))
  whole <- !is.na(values) & is.finite(values) & values == floor(values) & abs(values) < 2^53
  texts[whole] <- sprintf("%.0f", values[whole] + 0)
  other <- !is.na(values) & !whole
  texts[other] <- vapply(values[other], shortest, "")
  texts
}

# The shortest decimal text that reads as the same number.
shortest <- function(x) {
  if (is.infinite(x)) {
    return(if (x > 0) "inf" else "-inf")
  }
  for (digits in 1:17) {
    text <- sprintf("%.*g", digits, x)
    if (as.numeric(text) == x) {
      break
    }
  }
  text
}

settled_text <- function(texts) {
  whole <- grepl("^-?(0|[1-9][0-9]{0,15})[.]0+$", texts)
  number <- suppressWarnings(as.numeric(texts[whole]))
  exact <- abs(number) < 2^53
  texts[whole][exact] <- sprintf("%.0f", number[exact] + 0)
  truth <- texts %in% names(truth_texts)
  texts[truth] <- truth_texts[texts[truth]]
  texts
}

trimmed <- function(texts) gsub("^[ \t\n\v\f\r]+|[ \t\n\v\f\r]+$", "", texts)

# R rounds the decimals of a text twice. The quotient of a whole number and a power of ten, both exact, is rounded once.
as_numbers <- function(texts) {
  numbers <- suppressWarnings(as.numeric(texts))
  digits <- sub(".", "", texts, fixed = TRUE)
  short <- which(grepl("^[+-]?[0-9]*[.][0-9]+$", texts) & nchar(digits) <= 15)
  places <- nchar(sub("^[^.]*[.]", "", texts[short]))
  numbers[short] <- as.numeric(digits[short]) / 10^places
  numbers
}

marker_numbers <- function(markers) {
  as_numbers(markers[grepl(number_pattern, trimmed(markers))])
}

warn_of_rows <- function(rows, feature, held) {
  if (rows) {
    warning("feature ", sQuote(feature$name), ": ", rows, if (rows == 1) " row holds " else " rows hold ", held, call. = FALSE)
  }
}

# Index, from 1, of listed values; NA for missing and unlisted ones.
positions <- function(values, feature) {
  texts <- plain_text(values, feature$name)
  known <- unique(texts)
  at <- match(known, feature$values)
  settled <- settled_text(known)
  listed <- settled_text(feature$values)
  at[is.na(at)] <- match(settled, listed)[is.na(at)]
  marked <- is.na(known) | known %in% feature$markers
  numbers <- marker_numbers(feature$markers)
  short <- trimmed(known)
  readable <- !is.na(known) & grepl(number_pattern, short)
  marked[readable] <- marked[readable] | as_numbers(short[readable]) %in% numbers
  if (!is.null(feature$other)) {
    at[is.na(at) & !marked] <- match(enc2utf8(feature$other), feature$values)
  }
  at[is.na(known)] <- NA
  unlisted <- known[is.na(at) & !marked]
  warn_of_rows(sum(texts %in% unlisted), feature, "a value that the codebook does not list, which counts as missing")
  at[match(texts, known)]
}

# Numbers of a column: NA where a value is missing. Texts that are not numbers are an error, which counts them only.
numbers_in <- function(values, feature) {
  if (is.logical(values) && any(!is.na(values))) {
    stop("feature ", sQuote(feature$name), ": numeric in the codebook, truth values in the table", call. = FALSE)
  }
  markers <- marker_numbers(feature$markers)
  if (is_plain_number(values)) {
    numbers <- as.numeric(unclass(values))
  } else {
    texts <- plain_text(values, feature$name)
    texts[texts %in% feature$markers] <- NA
    short <- trimmed(texts)
    wrong <- !is.na(texts) & !grepl(number_pattern, short)
    if (any(wrong)) {
      stop("feature ", sQuote(feature$name), ": ", sum(wrong), if (sum(wrong) == 1) " row holds" else " rows hold", " a text that is neither a number nor a missing ",
        "marker; add the marker to the codebook or read the numbers before",
        call. = FALSE
      )
    }
    numbers <- as_numbers(short)
  }
  numbers[is.nan(numbers) | numbers %in% markers] <- NA
  infinite <- sum(is.infinite(numbers))
  if (infinite) { # read.csv makes it of the text Inf
    stop("feature ", sQuote(feature$name), ": ", infinite, if (infinite == 1) " row holds" else " rows hold",
      " infinity, which is no number; set it to NA, or to the number that is meant",
      call. = FALSE
    )
  }
  numbers
}
