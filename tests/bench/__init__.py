"""What `make bench` measures. Timings are here and not in the tests: a busy machine must not fail a build."""
