# Documents as bags of words, with the public rule by which a long document drops words.

mix <- c(0x7C15, 0x7F4A, 0x79B9, 0x9E37) # 2^64 over the golden ratio, in limbs of 16 bits, lowest first

words_in <- function(values, feature) {
  if (!is.null(feature$buckets)) {
    stop("feature ", sQuote(feature$name), " counts hashed words (BLAKE2b), which this client does not compute; ",
      "classify with `blindbayes predict`",
      call. = FALSE
    )
  }
  texts <- plain_text(values, feature$name)
  texts[texts %in% feature$markers] <- NA
  known <- !is.na(texts)
  lower <- lower_case(texts[known], feature$name)
  split <- regmatches(lower, gregexpr("(*UCP)\\b\\w\\w+\\b", lower, perl = TRUE))
  bags <- vector("list", length(texts))
  bags[known] <- lapply(split, bag_of, feature = feature)
  bags
}

ignorable <- "[\\p{Mn}\\p{Me}\\p{Cf}\\p{Lm}\\p{Sk}'.:\u00b7\u0387\u2018\u2019\u2024\u2027]*"
last_sigma <- paste0("[\\p{Lu}\\p{Ll}\\p{Lt}]", ignorable, "\\K\u03a3(?!", ignorable, "[\\p{Lu}\\p{Ll}\\p{Lt}])")

# Small letters as Unicode has them, and as every site computes them: a sigma at the end of a word, and a dotted capital I, too.
lower_case <- function(texts, name) {
  other <- grepl("[^\\x01-\\x7f]", texts, perl = TRUE)
  if (any(other) && !l10n_info()[["UTF-8"]]) {
    stop("column ", sQuote(name), " has letters that this locale does not know: Sys.setlocale(\"LC_CTYPE\", \"C.UTF-8\") before",
      call. = FALSE
    )
  }
  texts[other] <- gsub(last_sigma, "\u03c2", texts[other], perl = TRUE)
  texts[other] <- gsub("\u0130", "i\u0307", texts[other], fixed = TRUE)
  tryCatch(tolower(texts), error = function(problem) {
    stop("column ", sQuote(name), " holds a character that Unicode does not have", call. = FALSE)
  })
}

bag_of <- function(tokens, feature) {
  at <- match(tokens, feature$words)
  times <- table(at[!is.na(at)])
  words <- as.integer(names(times))
  times <- as.numeric(times)[order(words)]
  words <- sort(words)
  once <- feature$model == "bernoulli"
  if (once) times <- pmin(times, 1)
  size <- length(feature$words)
  reach <- if (!is.null(feature$max_words)) feature$max_words else if (once) size else 2^20
  if (sum(times) > reach) {
    first <- order_of_words(words - 1, sum(times), size)
    before <- cumsum(times[first]) - times[first]
    times[first] <- pmin(pmax(reach - before, 0), times[first])
  }
  list(words = words[times > 0], times = times[times > 0])
}

# Order in which the words of a document count: by a hash of word and length, 64-bit integers in limbs of 16 bits.
order_of_words <- function(words, total, size) {
  number <- words + total * size # below 2^53
  limbs <- lapply(0:3, function(at) floor(number / 65536^at) %% 65536)
  carry <- 0
  made <- list()
  for (at in 0:3) {
    sum <- carry
    for (i in 0:at) sum <- sum + limbs[[i + 1]] * mix[at - i + 1]
    made[[at + 1]] <- sum %% 65536
    carry <- floor(sum / 65536)
  }
  high <- made[[4]] * 65536 + made[[3]]
  low <- made[[2]] * 65536 + made[[1]]
  shifted_high <- floor(high / 2^29) # the number shifted right by 29 bits
  shifted_low <- (high %% 2^29) * 8 + floor(low / 2^29)
  order(xor32(high, shifted_high), xor32(low, shifted_low))
}

xor32 <- function(a, b) {
  upper <- bitwXor(as.integer(a %/% 65536), as.integer(b %/% 65536))
  lower <- bitwXor(as.integer(a %% 65536), as.integer(b %% 65536))
  upper * 65536 + lower
}
