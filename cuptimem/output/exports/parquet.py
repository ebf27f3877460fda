"""Every allocation as a row of a Parquet file, by pyarrow."""

from cuptimem.output.exports import Options, Written, arrow


def write(trace: str, path: str, options: Options) -> Written:
    parquet = arrow.pyarrow("parquet")
    return arrow.write_with(
        trace, path, options, parquet.ParquetWriter, "pandas.read_parquet, polars.read_parquet, DuckDB"
    )
