"""Random numbers: functions of (seed, position) by Philox4x32-10, and dropout."""
