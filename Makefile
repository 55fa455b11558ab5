# The two commands of the README, the steps they consist of, and the release archive.

.PHONY: run test setup build lint deny dist

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
	-@./setup smart-turn voice  # Optional: without them the server starts, and says what it lacks.
	cargo build --locked --release

lint: setup
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || \
	  { echo "lint: needs rustfmt and clippy: rustup component add rustfmt clippy" >&2; exit 1; }
	cargo fmt --check
	cargo clippy --locked --all-targets -- --deny warnings

# The program, its libraries, models and licences as an archive with a checksum, in dist/.
dist: build
	@./setup smart-turn voice
	.ci/dist $(VERBATIM)

# Licences, sources and known vulnerabilities of the dependencies: cargo install --locked cargo-deny
deny:
	cargo deny --locked check bans licenses sources
	cargo deny --locked check advisories
