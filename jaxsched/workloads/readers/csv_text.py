"""CSV files as exact texts: ids stay what they are, and what is wrong with a file is said in one line."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from jaxsched.errors import InputError, nearest

_LFS_POINTER = b"version https://git-lfs"


def read_text_table(path: str | Path, kind: str) -> pd.DataFrame:
    """A CSV with a header as exact texts (object columns); a BOM, CRLF and blank last lines do not matter.

    ``kind`` ("jobs", "nodes") is what an empty file is said to lack. Raises ``InputError``.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no file {path}")
    with path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise InputError(
                f"{path} is a Git LFS pointer, not data: fetch it with 'git lfs pull' or by hand"
            )
    try:
        table = pd.read_csv(path, dtype=object, keep_default_na=False, encoding="utf-8-sig", index_col=False)
    except pd.errors.EmptyDataError:
        raise InputError(f"no {kind} in {path}: the file is empty") from None
    except (pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not a readable CSV table: {str(error).splitlines()[0]}") from None
    if len(table.columns) == 1 and ";" in str(table.columns[0]):
        raise InputError(f"{path}: 1 column found, is the separator ';'? Columns must be separated by ','")
    if table.empty:
        raise InputError(f"no {kind} in {path}: only a header")
    table.columns = [str(c).strip() for c in table.columns]
    return table.fillna("")


def require_columns(
    table: pd.DataFrame, required: tuple[str, ...], path: str | Path, advice: str = ""
) -> None:
    """Raises ``InputError`` naming the file, every missing column, what was found and the nearest match."""
    found = [str(c) for c in table.columns]
    missing = [c for c in required if c not in found]
    if missing:
        hint = nearest(missing[0], [c for c in found if c not in required] or found)
        hint = f"; {hint}" if hint.startswith("did you") else ""
        raise InputError(
            f"{path}: missing column {', '.join(missing)}; found {', '.join(found)}{hint}{advice}"
        )
