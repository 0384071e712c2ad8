"""What can go wrong at the bench.

WorkbenchError
  BenchError
    UsageError            an option or argument that cannot be followed
    StoreError            a results folder that cannot be read or written as asked
      NewerFormatError    written by a newer version of the workbench
      DiskFullError       no room left; finished trials are kept (exit code 1)
      RunLockedError      another process is writing this run (exit code 1)
    DriftError            code or checkpoint changed since the run began
    ComparisonError       points that may not share one front
    BundleError           an archive of a report that is damaged or unsafe
    ForeignFileError      a file of another tool that cannot be imported
      UnknownFileError    a file that is no result of a known tool
    EvidenceError         a folder or a choice of steps that no evidence can be made of
    PriceError            a price table that cannot be read
    MemoryTooSmallError   what this host's memory can never hold (exit code 1)
    PortInUseError        another process listens where the pages would (exit code 1)
    PeerInstallError      another engine that could not be installed (exit code 1)
    FetchError            a checkpoint that cannot be had, or is not the one expected (exit code 1)
"""

from __future__ import annotations

from kernels.errors import WorkbenchError


class BenchError(WorkbenchError):
    """Anything the workbench refuses or fails at."""


class UsageError(BenchError):
    """An option or argument that cannot be followed."""


class StoreError(BenchError):
    """A results folder that cannot be read or written as asked."""


class NewerFormatError(StoreError):
    """A results folder written by a newer version; nothing in it was touched."""


class DiskFullError(StoreError):
    """No room for the next file; every finished trial is kept."""

    exit_code = 1


class RunLockedError(StoreError):
    """Another process is writing this run."""

    exit_code = 1


class DriftError(BenchError):
    """The code or the checkpoint changed since the run began."""


class ComparisonError(BenchError):
    """Points that may not share one front: different model, workload or basis."""


class BundleError(BenchError):
    """An archive of a report that is damaged, incomplete or unsafe to unpack."""


class ForeignFileError(BenchError):
    """A file of another tool that is unknown, damaged or says nothing; nothing was stored."""


class UnknownFileError(ForeignFileError):
    """A file that is no result of a known tool; it is left out where its folder was named."""


class EvidenceError(BenchError):
    """A folder or a choice of steps that no evidence of a device can be made of."""


class MemoryTooSmallError(BenchError):
    """Weights, or records, that the memory of this host can never hold; nothing was started."""

    exit_code = 1


class PortInUseError(BenchError):
    """Another process listens on the address and port asked for."""

    exit_code = 1


class FetchError(BenchError):
    """A checkpoint that cannot be had, or whose bytes are not those expected; nothing was kept."""

    exit_code = 1


class PriceError(BenchError):
    """A price table that cannot be read, or a tier that it does not have."""


class PeerInstallError(BenchError):
    """Another engine could not be installed, or what it brings is not there."""

    exit_code = 1
