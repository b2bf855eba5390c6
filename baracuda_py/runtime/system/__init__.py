"""What the operating system holds: files of ours, locks that survive a fork, CUDA libraries, compilers."""
