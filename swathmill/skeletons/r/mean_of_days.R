# Compute the mean of each layer over the days of a group: mean_of_days.R INPUT_DIR OUTPUT_DIR.
#
# X.bin has float32 values in physical units, band after band (one for each day), NaN where there is
# none; X.hdr has samples, lines and bands. X_mean.bin, one band of the same size, is the output.
# It needs R (r-base-core) on the worker, and no further package of R.

folders <- commandArgs(trailingOnly = TRUE)

field <- function(header, name) {
  line <- grep(paste0("^", name, " = "), header, value = TRUE)
  as.integer(sub(".* = ", "", line))
}

stems <- sub("\\.hdr$", "", list.files(folders[1], pattern = "\\.hdr$"))
# The further bands of a layer, where the request asks for them.
stems <- stems[!grepl("\\.(codes|count|source|reason)$", stems)]

for (stem in stems) {
  header <- readLines(file.path(folders[1], paste0(stem, ".hdr")))
  pixels <- field(header, "lines") * field(header, "samples")
  days <- field(header, "bands")
  path <- file.path(folders[1], paste0(stem, ".bin"))
  values <- readBin(path, "numeric", n = pixels * days, size = 4, endian = "little")
  mean_of_days <- rowMeans(matrix(values, nrow = pixels), na.rm = TRUE)
  out <- file(file.path(folders[2], paste0(stem, "_mean.bin")), "wb")
  writeBin(mean_of_days, out, size = 4, endian = "little")
  close(out)
  cat(stem, ": mean of", days, "days\n")
}
