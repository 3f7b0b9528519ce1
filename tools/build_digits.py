"""Make the built-in data set ``digits`` from the complete MNIST.

Training: 2,000 images of each class of the training set; test: 200 of each class of the test set. The picks
are spread evenly over each class, because MNIST is not shuffled: the first half of its test set is the harder
one, and a part should stand for the whole. Both stay in their original order. The arrays are always the same
bytes; the archive around them too, for one version of the LZMA library.

    python tools/build_digits.py DATA_FOLDER [OUTPUT]
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np

from hauberk.data.integrity import check_sha256, sha256_of
from hauberk.data.named import NAMED_SETS
from hauberk.errors import RequestError

OUTPUT = Path(__file__).parents[1] / "src" / "hauberk" / "data" / "embedded" / "digits.npz"


def spread_over_each_class(labels: np.ndarray, count: int) -> np.ndarray:
    """Indices of ``count`` members of every class, evenly spread over the class, ascending."""
    members = [np.flatnonzero(labels == digit) for digit in range(10)]
    return np.sort(np.concatenate([each[np.arange(count) * len(each) // count] for each in members]))


def build(data_dir: Path, output: Path) -> str:
    """Write the archive and return the checksum of its arrays."""
    mnist = NAMED_SETS["mnist"]
    found = mnist.find(data_dir)
    if found is None:
        raise RequestError(f"mnist was not found in {data_dir}; give the folder that holds it.")
    layout, paths = found
    raw = layout.read(paths)
    check_sha256(*raw.arrays, expected=str(mnist.arrays_sha256), named=f"mnist in {data_dir}")
    train, test = spread_over_each_class(raw.y_train, 2_000), spread_over_each_class(raw.y_test, 200)
    arrays = {
        "x_train": raw.x_train[train, 0],
        "y_train": raw.y_train[train],
        "x_test": raw.x_test[test, 0],
        "y_test": raw.y_test[test],
    }
    with zipfile.ZipFile(output, "w", compression=zipfile.ZIP_LZMA) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, version=(1, 0), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))  # no clock in the file
            entry.compress_type = zipfile.ZIP_LZMA
            archive.writestr(entry, content.getvalue())
    return sha256_of(*arrays.values())


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python tools/build_digits.py DATA_FOLDER [OUTPUT]")
    output = Path(sys.argv[2]) if len(sys.argv) == 3 else OUTPUT
    try:
        checksum = build(Path(sys.argv[1]), output)
    except RequestError as error:
        sys.exit(str(error))
    print(f"{output}: {output.stat().st_size} bytes, sha256 of the arrays {checksum}")


if __name__ == "__main__":
    main()
