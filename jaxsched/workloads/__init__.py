"""Where jobs come from: trace readers, the synthetic generator and the pools that the simulator runs on.

Host code (pandas and numpy). ``load`` reads a job list in any known format.
"""

from jaxsched.workloads.readers import FORMATS, load
from jaxsched.workloads.readers.native import read_nodes_csv
from jaxsched.workloads.report import LoadReport
from jaxsched.workloads.schema import JobTable, NodeTable

__all__ = ["FORMATS", "JobTable", "LoadReport", "NodeTable", "load", "read_nodes_csv"]
