"""Several parties: joint statistics when an adversary may hold all members but one."""
