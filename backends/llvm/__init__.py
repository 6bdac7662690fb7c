"""Host SSA and kernels as LLVM IR, compiled in process."""

assert __name__ == "tlc.backends.llvm"
