library(testthat)
library(blindbayes)

test_check("blindbayes")
