# The two commands of the README, and the steps they are made of.

.PHONY: run test setup build lint deny

VERBATIM = $(or $(CARGO_TARGET_DIR),target)/release/verbatim
# For the server: make run ARGUMENTS='--model tiny.en --listen 127.0.0.1:8001'
ARGUMENTS =

run: build
	@python3 tests/first_run.py $(VERBATIM) .verbatim/speech $(ARGUMENTS)

test: setup lint
	python3 tests/setup_test.py
	python3 tests/autobahn/run.py --install
	cargo test --locked

setup:
	@./setup

build:
	@./setup libtorch cmake base silero-vad speech
	-@./setup smart-turn voice  # The server does without them, and says so.
	cargo build --locked --release

lint: setup
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || \
	  { echo "lint: needs rustfmt and clippy: rustup component add rustfmt clippy" >&2; exit 1; }
	cargo fmt --check
	cargo clippy --locked --all-targets -- --deny warnings

# Licences, sources and known faults of the dependencies: cargo install --locked cargo-deny
deny:
	cargo deny --locked check bans licenses sources
	cargo deny --locked check advisories
