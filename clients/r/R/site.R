# A site's agent, through its JSON interface on loopback. Approving is left to people: no function here does it.

bb_site <- function(folder = NULL, url = NULL, token = NULL) {
  if (!is.null(folder)) {
    path <- file.path(folder, "operator.token")
    if (!file.exists(path)) {
      stop("no agent runs in ", sQuote(folder), ": start it with `blindbayes site serve`", call. = FALSE)
    }
    given <- strsplit(trimws(readLines(path, warn = FALSE)[1]), " ", fixed = TRUE)[[1]]
    url <- paste0("http://", given[1])
    token <- given[2]
  }
  if (is.null(url) || is.null(token)) {
    stop("name the site's folder, or url and token", call. = FALSE)
  }
  structure(list(url = url, token = token), class = "bb_site")
}

print.bb_site <- function(x, ...) {
  cat("blindbayes site at ", x$url, "\n", sep = "")
  invisible(x)
}

perform <- function(site, path, query = NULL, body = NULL) {
  request <- httr2::request(paste0(site$url, path))
  request <- httr2::req_auth_bearer_token(request, site$token)
  request <- httr2::req_timeout(request, 120)
  if (length(query)) request <- do.call(httr2::req_url_query, c(list(request), query))
  if (!is.null(body)) request <- httr2::req_body_json(request, body)
  request <- httr2::req_error(request, is_error = function(response) FALSE)
  tryCatch(
    httr2::req_perform(request),
    error = function(problem) {
      stop("the agent at ", site$url, " does not answer: does it still run?", call. = FALSE)
    }
  )
}

call_site <- function(site, path, query = NULL, body = NULL) {
  response <- perform(site, paste0("/api", path), query, body)
  answer <- tryCatch(httr2::resp_body_json(response, simplifyVector = FALSE), error = function(problem) list())
  if (httr2::resp_status(response) >= 400) {
    message <- if (is.null(answer$message)) "the request was refused" else answer$message
    stop(structure(
      class = c("blindbayes_error", "error", "condition"),
      list(message = message, call = NULL, status = httr2::resp_status(response), error = answer$error)
    ))
  }
  answer
}

named <- function(fields) {
  if (!length(fields)) {
    return(stats::setNames(list(), character()))
  }
  lapply(as.list(fields), function(each) if (is.logical(each)) if (each) "yes" else "" else as.character(each))
}

bb_status <- function(site) call_site(site, "/status")

bb_studies <- function(site) {
  rows <- call_site(site, "/studies")$studies
  data.frame(
    study = vapply(rows, function(row) row$study, ""),
    title = vapply(rows, function(row) row$title, ""),
    state = vapply(rows, function(row) row$state, ""),
    protocol = vapply(rows, function(row) row$protocol, ""),
    runs = vapply(rows, function(row) as.integer(row$runs), 0L)
  )
}

bb_study <- function(site, study) call_site(site, paste0("/studies/", study))

bb_draft <- function(site, title, codebook, kind = c("rows", "columns", "join"), fields = list()) {
  text <- if (length(codebook) == 1 && file.exists(codebook)) {
    paste(readLines(codebook, warn = FALSE, encoding = "UTF-8"), collapse = "\n")
  } else {
    paste(codebook, collapse = "\n")
  }
  draft <- call_site(site, "/write", body = list(title = title, kind = match.arg(kind), text = text))$draft
  bb_fill(site, draft, fields)
  draft
}

# Store fields beside those that the draft has.
bb_fill <- function(site, draft, fields) {
  known <- call_site(site, paste0("/write/", draft))$texts
  filled <- utils::modifyList(named(known), named(fields))
  call_site(site, paste0("/write/", draft), body = list(fields = named(filled)))
  filled
}

bb_check_draft <- function(site, draft) {
  shown <- call_site(site, paste0("/write/", draft))
  list(problems = lapply(shown$errors, texts_of), summary = shown$summary, fields = shown$texts)
}

bb_make <- function(site, draft, fields = list()) {
  filled <- bb_fill(site, draft, fields)
  call_site(site, paste0("/write/", draft, "/make"), body = list(fields = named(filled)))$study
}

bb_send <- function(site, study) invisible(call_site(site, paste0("/studies/", study, "/send"), body = named(NULL)))

bb_dry_run <- function(site, study) call_site(site, paste0("/studies/", study, "/dry-run"), body = named(NULL))

bb_run <- function(site, study, wait = TRUE) follow(site, call_site(site, "/runs", body = list(study = study)), wait)

bb_evaluate <- function(site, study, wait = TRUE) {
  follow(site, call_site(site, "/evaluations", body = list(study = study)), wait)
}

follow <- function(site, run, wait) {
  if (identical(run$state, "refused")) {
    stop("the run was refused: ", run$message, call. = FALSE)
  }
  while (wait && isTRUE(run$under_way)) {
    message(run$text)
    run <- call_site(site, paste0("/runs/", run$run), query = list(after = run$text))
  }
  if (wait && !identical(run$state, "done")) {
    stop("the run ended without a result: ", run$text, call. = FALSE)
  }
  run
}

bb_run_status <- function(site, run) call_site(site, paste0("/runs/", run))

bb_releases <- function(site) {
  rows <- call_site(site, "/releases")$releases
  data.frame(
    run = vapply(rows, function(row) row$run, ""),
    title = vapply(rows, function(row) row$title, ""),
    time = vapply(rows, function(row) row$time, "")
  )
}

bb_release <- function(site, run) call_site(site, paste0("/releases/", run))

bb_download <- function(site, run, name, path = basename(name)) {
  response <- perform(site, paste0("/releases/", run, "/files/", name))
  if (httr2::resp_status(response) != 200) {
    stop("this site has no file ", sQuote(name), " of that release that may be downloaded", call. = FALSE)
  }
  writeBin(httr2::resp_body_raw(response), path)
  invisible(path)
}

bb_model <- function(site, run) {
  path <- tempfile(fileext = ".json")
  on.exit(unlink(path))
  read_model(bb_download(site, run, "model.json", path))
}
