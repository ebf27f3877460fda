"""A program: reads a trace's rows with pyarrow, pandas, polars and DuckDB, and prints what each found, as JSON."""

import json
import sys
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow
from pyarrow import ipc

import cuptimem

LIVE = "freed_ns IS NULL"


def main(trace: str, folder: str) -> None:
    report = cuptimem.open(trace)
    rows = report.to_arrow()
    table = pyarrow.table(rows)
    table.validate(full=True)
    files = {kind: str(Path(folder) / f"out.{kind}") for kind in ("arrow", "parquet")}
    for kind, path in files.items():
        report.export(kind, path)
    frame = table.to_pandas()
    frames = {
        "pyarrow": frame,
        "pandas": pandas.DataFrame.from_arrow(rows),
        "ipc": ipc.open_stream(files["arrow"]).read_pandas(),
        "pandas parquet": pandas.read_parquet(files["parquet"]),
        "polars": polars.DataFrame(rows).to_pandas(),
        "polars ipc": polars.read_ipc_stream(files["arrow"]).to_pandas(),
        "polars parquet": polars.read_parquet(files["parquet"]).to_pandas(),
        "duckdb": duckdb.sql("SELECT * FROM rows").df(),
        "duckdb parquet": duckdb.sql(f"SELECT * FROM '{files['parquet']}'").df(),
    }
    found = {}
    for name, one in frames.items():
        assert list(one.columns) == list(table.column_names), name
        devices = one["device"].astype(str)
        of = {
            device: [
                int(one["bytes"][(devices == device) & (one["when"].astype(str) != "before start")].sum()),
                int(one["bytes"][(devices == device) & one["freed_ns"].isna()].sum()),
            ]
            for device in sorted(set(devices))
        }
        texts = [sorted(map(str, one[column].dropna().unique())) for column in ("where", "stack", "category", "when")]
        found[name] = [len(one), of, texts]
    json.dump({"versions": [m.__version__ for m in (pyarrow, pandas, polars, duckdb)], "found": found}, sys.stdout)


main(*sys.argv[1:])
