"""What can be asked of a plan besides running it: explain, tune and remember winners, verify, save, ledger and digests."""
