function mean_of_days(source, target)
% Compute the mean of each layer over the days of a group: mean_of_days INPUT_DIR OUTPUT_DIR.
%
% X.bin has float32 values in physical units, band after band (one for each day), NaN where there
% is none; X.hdr has samples, lines and bands. X_mean.bin, one band of the same size, is the output.
%
% Compile it with the MATLAB Compiler, in the package's folder:  mcc -m mean_of_days.m
headers = dir(fullfile(source, '*.hdr'));
for k = 1:numel(headers)
    [~, stem] = fileparts(headers(k).name);
    % The further bands of a layer, where the request asks for them.
    if ~isempty(regexp(stem, '\.(codes|count|source|reason)$', 'once'))
        continue
    end
    header = fileread(fullfile(source, headers(k).name));
    pixels = field(header, 'lines') * field(header, 'samples');
    days = field(header, 'bands');
    in = fopen(fullfile(source, [stem '.bin']), 'r', 'ieee-le');
    values = fread(in, [pixels days], 'single');
    fclose(in);
    out = fopen(fullfile(target, [stem '_mean.bin']), 'w', 'ieee-le');
    fwrite(out, mean(values, 2, 'omitnan'), 'single');
    fclose(out);
    fprintf('%s: mean of %d days\n', stem, days);
end
end

function value = field(header, name)
found = regexp(header, ['\n' name ' = (\d+)'], 'tokens', 'once');
value = str2double(found{1});
end
