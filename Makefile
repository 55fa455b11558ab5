# The two commands of the README, the steps they consist of, and the release archive.

.PHONY: run test setup build lint deny sanitize miri dist

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
	-@./setup smart-turn voice speakers  # Optional: without them the server starts, and says what it lacks.
	cargo build --locked --release

lint: setup
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || \
	  { echo "lint: needs rustfmt and clippy: rustup component add rustfmt clippy" >&2; exit 1; }
	cargo fmt --check
	cargo clippy --locked --all-targets -- --deny warnings

# The program, its libraries, models and licences as an archive with a checksum, in dist/.
dist: build
	@./setup smart-turn voice speakers
	.ci/dist $(VERBATIM)

# Licences, sources and known vulnerabilities of the dependencies: cargo install --locked cargo-deny
deny:
	cargo deny --locked check bans licenses sources
	cargo deny --locked check advisories

# Memory errors in kernels (with their intrinsics), parsers and the spool, by AddressSanitizer. Needs any nightly
# toolchain (rustup toolchain install nightly), and some 20 minutes the first time: it builds all dependencies anew.
# Leaks are not looked for, as libtorch keeps memory to its end; SQLite has a static that is there twice.
SANITIZED = audio:: cpu:: vad:: jobs::spool jobs::quarantine fetch::own http::websocket
sanitize: setup
	@rustc +nightly --version >/dev/null 2>&1 || \
	  { echo "sanitize: needs a nightly toolchain: rustup toolchain install nightly" >&2; exit 1; }
	ASAN_OPTIONS=detect_odr_violation=0:detect_leaks=0 RUSTFLAGS=-Zsanitizer=address \
	  cargo +nightly test --locked --lib --target x86_64-unknown-linux-gnu -- $(SANITIZED)

# Undefined behaviour in code that the interpreter can run: the scalar twins of the kernels, their threads, the
# parsers of headers, the names and files of the spool. Needs two components of a nightly toolchain (rustup
# +nightly component add miri rust-src). Without isolation, because tests read the working directory; what is
# skipped takes hours there, calls C, or asks the disk for its free space.
INTERPRETED = cpu:: vad::dense vad::onnx vad::spans audio::aac audio::mp4 audio::raw audio::wave jobs::spool
NOT_INTERPRETED = encoder_attention jobs_follow_each_other has_no_room
miri: setup
	@cargo +nightly miri --version >/dev/null 2>&1 || \
	  { echo "miri: needs rustup +nightly component add miri rust-src" >&2; exit 1; }
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=4 cargo +nightly miri test --locked --lib -- \
	  $(INTERPRETED) $(addprefix --skip ,$(NOT_INTERPRETED))
