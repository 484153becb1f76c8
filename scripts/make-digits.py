#!/usr/bin/env python3
"""Makes data/digits from the digits set that the Python package scikit-learn carries.

    pip download --no-deps scikit-learn        # or any other way to get the package
    scripts/make-digits.py scikit_learn-*.whl

The set is the test half of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, 1998, UCI Machine
Learning Repository, CC BY 4.0): 1797 images of 8x8 pixels with values 0 to 16. Every fifth image, counted from the
fifth, is kept to be judged by. The files are in the IDX format of MNIST, and come out the same every time.
"""

import gzip
import os
import struct
import sys
import zipfile


def idx(path, dims, data):
    with open(path, "wb") as file:
        file.write(struct.pack(">BBBB", 0, 0, 8, len(dims)))
        file.write(struct.pack(f">{len(dims)}I", *dims))
        file.write(bytes(data))


def main(wheel):
    with zipfile.ZipFile(wheel) as package:
        text = gzip.decompress(package.read("sklearn/datasets/data/digits.csv.gz")).decode()
    rows = [[int(float(field)) for field in line.split(",")] for line in text.splitlines()]
    assert len(rows) == 1797 and all(len(row) == 65 and max(row[:64]) <= 16 for row in rows)
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "digits")
    os.makedirs(folder, exist_ok=True)
    for split, chosen in [
        ("train", [row for at, row in enumerate(rows) if at % 5 != 4]),
        ("t10k", [row for at, row in enumerate(rows) if at % 5 == 4]),
    ]:
        pixels = [pixel for row in chosen for pixel in row[:64]]
        idx(os.path.join(folder, f"{split}-images-idx3-ubyte"), [len(chosen), 8, 8], pixels)
        idx(os.path.join(folder, f"{split}-labels-idx1-ubyte"), [len(chosen)], [row[64] for row in chosen])
        print(f"{split}: {len(chosen)} images")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
