# The two commands of the README, and the steps they are made of.

.PHONY: run test setup build deny

VERBATIM = $(or $(CARGO_TARGET_DIR),target)/release/verbatim
# For the server: make run ARGUMENTS='--model tiny.en --listen 127.0.0.1:8001'
ARGUMENTS =

run: build
	@python3 tests/first_run.py $(VERBATIM) .verbatim/speech $(ARGUMENTS)

test: setup
	cargo fmt --check
	cargo clippy --locked --all-targets -- --deny warnings
	cargo test --locked

setup:
	@./setup

build: setup
	cargo build --locked --release

deny:
	cargo deny check
