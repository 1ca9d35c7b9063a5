# Compute the mean of each layer over the days of a group: mean_of_days.jl INPUT_DIR OUTPUT_DIR.
#
# X.bin has Float32 values in physical units, band after band (one for each day), NaN where there is
# none; X.hdr has samples, lines and bands. X_mean.bin, one band of the same size, is the output.
# It needs no further package of Julia.

field(header, name) = parse(Int, match(Regex("(?m)^$name = (\\d+)\$"), header)[1])

function mean_of_days(source, target, stem)
    header = read(joinpath(source, stem * ".hdr"), String)
    pixels = field(header, "samples") * field(header, "lines")
    days = field(header, "bands")
    values = Vector{Float32}(undef, pixels)
    total, number = zeros(pixels), zeros(Int, pixels)
    open(joinpath(source, stem * ".bin")) do file
        for _ in 1:days
            read!(file, values)
            for (i, value) in enumerate(ltoh.(values))
                isnan(value) && continue
                total[i] += value
                number[i] += 1
            end
        end
    end
    mean = Float32[n > 0 ? t / n : NaN for (t, n) in zip(total, number)]
    write(joinpath(target, stem * "_mean.bin"), htol.(mean))
    println(stem, ": mean of ", days, " days")
end

source, target = ARGS
for name in readdir(source)
    stem, ending = splitext(name)
    # The further bands of a layer, where the request asks for them.
    (ending != ".hdr" || occursin(r"\.(codes|count|source|reason)$", stem)) && continue
    mean_of_days(source, target, stem)
end
