/* Compute the mean of each layer over the days of a group: mean_of_days INPUT_DIR OUTPUT_DIR.
 *
 * X.bin has float32 values in physical units, band after band (one for each day), NaN where there is
 * none; X.hdr has samples, lines and bands. X_mean.bin, one band of the same size, is the output.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long number(const char *header, const char *name) {
    char line[64];
    snprintf(line, sizeof line, "\n%s = ", name);
    const char *found = strstr(header, line);
    return found ? atol(found + strlen(line)) : 0;
}

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), part = strlen(end);
    return length >= part && strcmp(text + length - part, end) == 0;
}

static FILE *open_or_end(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

static void mean_of_days(const char *source, const char *target, const char *stem) {
    char path[4096], header[65536] = "";
    snprintf(path, sizeof path, "%s/%s.hdr", source, stem);
    FILE *file = open_or_end(path, "r");
    header[fread(header, 1, sizeof header - 1, file)] = 0;
    fclose(file);
    long days = number(header, "bands");
    size_t pixels = (size_t)number(header, "lines") * (size_t)number(header, "samples");

    float *day = malloc(pixels * sizeof *day);
    double *total = calloc(pixels, sizeof *total);
    long *count = calloc(pixels, sizeof *count);
    if (!day || !total || !count) {
        fprintf(stderr, "no memory for %zu pixels\n", pixels);
        exit(1);
    }
    snprintf(path, sizeof path, "%s/%s.bin", source, stem);
    file = open_or_end(path, "rb");
    for (long n = 0; n < days; n++) {
        if (fread(day, sizeof *day, pixels, file) != pixels) {
            fprintf(stderr, "%s.bin is too short\n", stem);
            exit(1);
        }
        for (size_t i = 0; i < pixels; i++)
            if (!isnan(day[i])) {
                total[i] += day[i];
                count[i]++;
            }
    }
    fclose(file);
    for (size_t i = 0; i < pixels; i++)
        day[i] = count[i] ? (float)(total[i] / (double)count[i]) : NAN;
    snprintf(path, sizeof path, "%s/%s_mean.bin", target, stem);
    file = open_or_end(path, "wb");
    if (fwrite(day, sizeof *day, pixels, file) != pixels || fclose(file)) {
        perror(path);
        exit(1);
    }
    printf("%s: mean of %ld days\n", stem, days);
    free(day);
    free(total);
    free(count);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: mean_of_days INPUT_DIR OUTPUT_DIR\n");
        return 2;
    }
    DIR *folder = opendir(argv[1]);
    if (!folder) {
        perror(argv[1]);
        return 1;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        char stem[256];
        snprintf(stem, sizeof stem, "%s", entry->d_name);
        if (!ends_with(stem, ".hdr"))
            continue;
        stem[strlen(stem) - 4] = 0;
        /* The further bands of a layer, where the request asks for them. */
        if (ends_with(stem, ".codes") || ends_with(stem, ".count") || ends_with(stem, ".source") ||
            ends_with(stem, ".reason"))
            continue;
        mean_of_days(argv[1], argv[2], stem);
    }
    closedir(folder);
    return 0;
}
