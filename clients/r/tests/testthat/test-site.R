test_that("a site is named by its folder or by url and token", {
  expect_error(bb_site(tempfile()), "no agent runs")
  expect_error(bb_site(url = "http://127.0.0.1:1"), "folder, or url and token")
  site <- bb_site(url = "http://127.0.0.1:1", token = "secret")
  expect_output(print(site), "127.0.0.1:1")
  expect_false(any(grepl("secret", capture.output(print(site)))))
  expect_error(bb_status(site), "does not answer")
})

test_that("a real agent answers", {
  folder <- Sys.getenv("BLINDBAYES_SITE")
  skip_if(folder == "", "BLINDBAYES_SITE is not set")
  site <- bb_site(folder)
  expect_true("site" %in% names(bb_status(site)))
  expect_s3_class(bb_studies(site), "data.frame")
  expect_error(bb_study(site, strrep("0", 64)), class = "blindbayes_error")
  expect_error(bb_status(bb_site(url = site$url, token = "wrong")), class = "blindbayes_error")
  expect_error(bb_draft(site, "No codebook", "nonsense = ["), class = "blindbayes_error")
})
