"""The parts of tests/check: tasks, their schedule, their results."""
