"""What a plan offers besides running: explain, tune and record winners, verify, save, ledger and digests."""
