# Numbers on the public grid of a feature, and its histogram cells, in the arithmetic that every site uses.

is_whole <- function(x) x >= 1 && abs(x - round(x)) <= 1e-12 * max(abs(x), abs(round(x)))

with_grid <- function(feature) {
  precision <- if (is.null(feature$precision)) 1 else feature$precision
  inverse <- 1 / precision
  feature$step <- if (is_whole(inverse)) round(inverse) else inverse # grid steps per unit
  feature$grid_low <- floor(feature$low * feature$step + 0.5)
  feature$grid_high <- floor(feature$high * feature$step + 0.5)
  feature$centre <- floor((feature$grid_low + feature$grid_high) / 2)
  feature$edges <- vapply(feature$edges, as.numeric, 0)
  feature$spacing <- if (is.null(feature$scale)) "linear" else feature$scale
  if (is.null(feature$bins) && length(feature$edges)) {
    feature$bins <- length(feature$edges) + 1L
  }
  if (!is.null(feature$bins)) {
    feature$starts <- cell_starts(feature)
  }
  feature
}

# First grid point of each cell; NULL for cells of equal width, which are computed.
cell_starts <- function(feature) {
  if (length(feature$edges)) {
    return(c(feature$grid_low, floor(feature$edges * feature$step + 0.5)))
  }
  if (feature$spacing == "log") {
    return(thinned(log_points(feature$grid_low, feature$grid_high, 16), feature$bins))
  }
  NULL
}

log_points <- function(low, high, steps) {
  anchor <- min(max(low, 0), high)
  away <- numeric()
  step <- 1
  distance <- 1
  while (distance <= max(high - anchor, anchor - low)) {
    away <- c(away, distance)
    if (distance == 2 * steps * step) step <- step * 2
    distance <- distance + step
  }
  below <- anchor - rev(away) + 1
  above <- anchor + away
  c(low, below[below > low], above[above <= high])
}

thinned <- function(points, cells) {
  anchor <- min(max(points[1], 0), points[length(points)])
  inner <- points[-1]
  starts <- if (cells > 2) intersect(c(anchor, anchor + 1), inner) else numeric()
  rest <- setdiff(inner, starts)
  wanted <- cells - 1 - length(starts)
  if (wanted > 0) {
    at <- seq_len(wanted) - 1
    starts <- c(starts, rest[floor((2 * at + 1) * length(rest) / (2 * wanted)) + 1])
  }
  c(points[1], sort(unique(starts)))
}

# Grid points of numbers, clamped to the bounds; NA for missing.
grid_points <- function(numbers, feature) {
  points <- floor(numbers * feature$step + 0.5)
  warn_of_rows(
    sum(points < feature$grid_low | points > feature$grid_high, na.rm = TRUE), feature,
    paste0("a number out of bounds [", feature$low, ", ", feature$high, "], which counts as the nearest bound: is it in the unit of the codebook?")
  )
  pmin(pmax(points, feature$grid_low), feature$grid_high)
}

# Index, from 1, of the histogram cell of grid points; NA for missing.
cells_of <- function(points, feature) {
  if (is.null(feature$starts)) {
    width <- feature$grid_high - feature$grid_low + 1
    return(floor((points - feature$grid_low) * feature$bins / width) + 1)
  }
  cells <- findInterval(points, feature$starts)
  cells[is.na(points)] <- NA
  cells
}
