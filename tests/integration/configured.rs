//! The built program and its configuration: sources, refusals and their messages.

use std::process::Command;

use tempfile::TempDir;

use crate::commands::{home, run, verbatim};

fn configured(
    home: &TempDir,
    variables: &[(&str, &str)],
    arguments: &[&str],
) -> (Option<i32>, String, String) {
    run(verbatim(home, arguments).envs(variables.iter().copied()))
}

#[test]
fn variables_that_commands_read_are_no_settings() {
    let home = home();
    let own = [
        ("VERBATIM_KEY", "org_key"),
        ("VERBATIM_BENCH_KEY", "org_key"),
        ("VERBATIM_SERVICE_HOST", "10.0.0.7"),
        ("VERBATIM_PORT_8000_TCP", "tcp://10.0.0.7:8000"),
    ];
    let (code, _, error) = configured(&home, &own, &["keys", "list"]);
    assert_eq!(code, Some(0), "{error}");
    let (code, printed, error) = configured(&home, &own, &["config"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(!printed.contains("org_key") && !printed.contains("10.0.0.7"), "{printed}");
    // As far as the model, which is not there.
    let serve = ["serve", "--listen", "127.0.0.1:0", "--model", "nowhere"];
    let (code, _, error) = configured(&home, &own, &serve);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("nowhere") && !error.contains("VERBATIM_KEY"), "{error}");
}

/// Every variable that `--help` names, of any command, may stand in the environment of any other.
#[test]
fn every_variable_of_the_help_is_known() {
    let home = home();
    let mut named = std::collections::BTreeSet::new();
    for command in ["serve", "demo", "transcribe", "bench", "stream", "keys", "jobs", "models", "config"] {
        let (code, help, _) = run(&mut verbatim(&home, &[command, "--help"]));
        assert_eq!(code, Some(0), "{command}");
        let variables = help.split("[env: ").skip(1);
        named.extend(variables.map(|rest| rest.split(['=', ']']).next().unwrap_or_default().to_owned()));
    }
    assert!(named.len() >= 3, "{named:?}");
    for name in named.iter().filter(|name| *name != "VERBATIM_CONFIG_FILE") {
        let (code, _, error) = configured(&home, &[(name, "x")], &["keys", "list"]);
        assert_eq!(code, Some(0), "{name}: {error}");
    }
}

/// Environment variables, and arguments.
type Given<'a> = (Vec<(&'a str, &'a str)>, Vec<&'a str>);

#[test]
fn what_makes_no_sense_is_named_with_its_setting_value_source_and_what_is_allowed() {
    let home = home();
    let variable = |name: &'static str, value: &'static str| (vec![(name, value)], vec!["keys", "list"]);
    let flag = |arguments: &[&'static str]| (Vec::new(), arguments.to_vec());
    let cases: Vec<(Given<'_>, [&str; 3])> = vec![
        (
            variable("VERBATIM_MODELS__SLOTS", "many"),
            [
                "`models.slots` = \"many\"",
                "the environment variable VERBATIM_MODELS__SLOTS",
                "a whole number",
            ],
        ),
        (
            variable("VERBATIM_ENGINE__MAX_WAIT_SECONDS", "0"),
            ["`engine.max_wait_seconds`", "VERBATIM_ENGINE__MAX_WAIT_SECONDS", "greater than 0"],
        ),
        (
            variable("VERBATIM_FETCH_ALLOW", "http://intern"),
            ["`fetch.allow`", "VERBATIM_FETCH_ALLOW", "networks (10.1.0.0/16)"],
        ),
        (
            variable("VERBATIM_STS__TWILIO__ACCOUNT_SID", "AC0"),
            ["`sts.twilio.auth_token` is not set", "VERBATIM_STS__TWILIO__ACCOUNT_SID", "text messages"],
        ),
        (
            flag(&["keys", "list", "--log", "loud"]),
            ["`log.level` = \"loud\"", "the flag --log", "error, warn"],
        ),
        (
            flag(&["transcribe", "x.wav", "--threads", "9999"]),
            ["`models.threads` = 9999", "the flag --threads", "from 0 to 1024"],
        ),
        (
            flag(&["transcribe", "x.wav", "--concurrency", "0"]),
            ["'0'", "'--concurrency <N>'", "a whole number from 1"],
        ),
        (flag(&["bench", "x.wav", "--rounds", "0"]), ["'0'", "'--rounds <N>'", "a whole number from 1"]),
        (
            flag(&["transcribe", "x.wav", "--compute-type", "f64"]),
            ["'f64'", "'--compute-type <TYPE>'", "bf16"],
        ),
    ];
    for ((variables, arguments), expected) in cases {
        let (code, output, error) = configured(&home, &variables, &arguments);
        assert_eq!((code, output.as_str()), (Some(2), ""), "{arguments:?}: {error}");
        for expected in expected {
            assert!(error.contains(expected), "{expected} is not in: {error}");
        }
    }
    let file = home.path().join("verbatim.toml");
    std::fs::write(&file, "[jobs]\nconcurrency = 0\n").expect("writable");
    let path = file.to_str().expect("text");
    let (code, _, error) = configured(&home, &[], &["keys", "list", "--config", path]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("`jobs.concurrency` = 0") && error.contains(path), "{error}");
    assert!(error.contains("from 1 to"), "{error}");
}

#[test]
fn a_configuration_comes_from_a_pipe_too() {
    let home = home();
    let program = env!("CARGO_BIN_EXE_verbatim");
    let script = format!("printf '[models]\\nslots = 3\\n' | {program} config --config /dev/stdin");
    let output = Command::new("sh").args(["-c", &script]).env("HOME", home.path()).output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("models.slots = 3"), "{printed}");
}

#[test]
fn flags_of_the_engine_belong_to_commands_that_have_one() {
    let home = home();
    for command in ["serve", "demo", "transcribe", "bench", "config"] {
        let (_, help, _) = run(&mut verbatim(&home, &[command, "--help"]));
        assert!(help.contains("--threads") && help.contains("--device"), "{command}: {help}");
    }
    let others: [&[&str]; 7] = [
        &["keys", "list"],
        &["jobs", "list"],
        &["models", "list"],
        &["stream", "x.wav", "--key", "k"],
        &["completions", "bash"],
        &["man"],
        &["keys", "create", "--label", "x"],
    ];
    for arguments in others {
        let arguments = [arguments, &["--threads", "1"]].concat();
        let (code, _, error) = run(&mut verbatim(&home, &arguments));
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(error.contains("--threads"), "{error}");
    }
}

#[test]
fn shells_and_manuals_know_every_command_whatever_is_configured() {
    let home = home();
    let broken = [("VERBATIM_MODELS__SLOTS", "many")];
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, script, error) = configured(&home, &broken, &["completions", shell]);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{shell}");
        for word in ["transcribe", "stream", "completions", "output-dir"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
    let script = run(&mut verbatim(&home, &["completions", "bash"])).1;
    let checked = Command::new("bash").args(["-n", "-c", &script]).output().expect("bash");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

    let (code, page, error) = configured(&home, &broken, &["man"]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(page.contains(".TH verbatim 1") && page.contains("SUBCOMMANDS"), "{page}");
    let folder = home.path().join("pages");
    let (code, _, error) = run(&mut verbatim(&home, &["man", folder.to_str().expect("text")]));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    for page in ["verbatim.1", "verbatim-serve.1", "verbatim-transcribe.1", "verbatim-keys-create.1"] {
        let page = std::fs::read_to_string(folder.join(page)).expect(page);
        assert!(page.contains(".TH verbatim"), "{page}");
    }
}

#[test]
fn without_a_home_in_the_environment_the_users_own_is_taken() {
    let home = home();
    let printed = run(verbatim(&home, &["config"]).env_remove("HOME"));
    assert_eq!(printed.0, Some(0), "{}", printed.2);
    assert!(!printed.1.contains("\"/.local/state"), "{}", printed.1);
}
