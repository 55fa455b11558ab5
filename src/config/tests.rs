use super::*;

fn sources(variables: &[(&str, &str)]) -> Sources {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Sources::new(None, variables, Vec::new()).expect("no file is named")
}

#[test]
fn a_variable_is_what_its_setting_is() {
    let config = sources(&[
        ("VERBATIM_STATE_DIR", "123"),
        ("VERBATIM_MODEL_DIR", "true"),
        ("VERBATIM_MODELS__MODEL", "[1]"),
        ("VERBATIM_STS__SPEECH__VOICE", "1.5"),
        ("VERBATIM_MODELS__SLOTS", "8"),
        ("VERBATIM_AUDIO__MAX_SECONDS", "90"),
        ("VERBATIM_AUTH__ACCEPT_TOKEN_SCHEME", "false"),
        ("VERBATIM_LISTEN", "[::1]:80"),
        ("VERBATIM_HTTP__TLS__CERTIFICATE", "1"),
        ("VERBATIM_HTTP__TLS__KEY", "{a}"),
        ("VERBATIM_HTTP__CORS_ORIGINS", "[\"https://a.example\", \"https://b.example\"]"),
        ("VERBATIM_FETCH_ALLOW", "10.0.0.1, 10.0.0.0/8 ,"),
        // No settings: of the repository's scripts, and of Kubernetes beside a service of this name.
        ("VERBATIM_CACHE", "/cache"),
        ("VERBATIM_SERVICE_HOST", "10.0.0.7"),
        ("VERBATIM_SERVICE_PORT_HTTP", "8000"),
        ("VERBATIM_PORT", "tcp://10.0.0.7:8000"),
        ("VERBATIM_PORT_8000_TCP_ADDR", "10.0.0.7"),
        ("HOME", "/"),
    ]);
    let config = config.read().expect("all make sense");
    assert_eq!((config.state_dir, config.model_dir), ("123".into(), "true".into()));
    assert_eq!((config.models.model.as_str(), config.models.slots), ("[1]", 8));
    assert_eq!((config.sts.speech.voice.as_str(), config.audio.max_seconds), ("1.5", 90.0));
    assert!(!config.auth.accept_token_scheme);
    assert_eq!(config.listen.to_string(), "[::1]:80");
    let tls = config.http.tls.expect("both files");
    assert_eq!((tls.certificate, tls.key), ("1".into(), "{a}".into()));
    assert_eq!(config.http.cors_origins, ["https://a.example", "https://b.example"]);
    assert_eq!(config.fetch.allow, ["10.0.0.1", "10.0.0.0/8"]);
}

#[test]
fn what_is_unknown_or_of_another_kind_is_an_error_that_names_its_variable() {
    for (variable, value) in [
        ("VERBATIM_STATEDIR", "x"),
        ("VERBATIM_MODELS__SLOTS", "many"),
        ("VERBATIM_MODELS__SLOTS", ""),
        ("VERBATIM_AUTH__ACCEPT_TOKEN_SCHEME", "maybe"),
        ("VERBATIM_LISTEN", "here"),
        ("VERBATIM_MODELS", "base"),
        ("VERBATIM_MODELS__DEVICE", "gpu"),
        ("VERBATIM_PORTS", "8000"),
    ] {
        let error = sources(&[(variable, value)]).read().expect_err(variable).to_string();
        assert!(error.contains(variable), "{error}");
    }
}

/// Setting as a variable, values that may not stand there, and what the error says may.
const WRONG: &[(&str, &[&str], &str)] = &[
    ("VERBATIM_MODELS__SLOTS", &["-1", "1.5", "many", "99999999999999999999999"], "a whole number from 0"),
    ("VERBATIM_MODELS__THREADS", &["-1", "4000000000"], "a whole number from 0 to 1024"),
    ("VERBATIM_ENGINE__MAX_WAIT_SECONDS", &["0", "-1", "inf", "nan", "1e300"], "greater than 0"),
    ("VERBATIM_ENGINE__MAX_REQUESTS", &["0", "-5"], "a whole number from 1"),
    ("VERBATIM_TRANSCRIBE__VAD__THRESHOLD", &["-0.1", "1.1", "nan"], "a number from 0 to 1"),
    ("VERBATIM_TRANSCRIBE__VAD__MAX_SPEECH_DURATION_S", &["0", "-1"], "at least 1"),
    ("VERBATIM_LIVE__HOP_MS", &["0"], "a whole number from 100"),
    ("VERBATIM_LIVE__AHEAD_SECONDS", &["0", "34"], "from 35"),
    ("VERBATIM_HTTP__CONNECTIONS_MAX", &["0", "18446744073709551615"], "a whole number from 1"),
    ("VERBATIM_HTTP__IDLE_TIMEOUT_MS", &["0", "18446744073709551615"], "a whole number from 1"),
    ("VERBATIM_HTTP__CORS_ORIGINS", &["app.example", "https://a.example/path"], "origins"),
    ("VERBATIM_FETCH_ALLOW", &["*.internal", "8080", "http://a", "10.0.0.0/33", "a:99999"], "networks"),
    ("VERBATIM_JOBS__RETRY_DELAYS_SECONDS", &["5, 0", "5, x", "1e300"], "greater than 0"),
    ("VERBATIM_JOBS__RESULT_RETENTION_SECONDS", &["18446744073709551615"], "a whole number from 0"),
    ("VERBATIM_STS__PUBLIC_URL", &["voice.example", "ftp://voice.example", ""], "http://"),
    ("VERBATIM_STS__LIVEKIT__URL", &["media.example"], "wss://"),
    ("VERBATIM_STS__LANGUAGE", &["", "englisch!"], "the code of a language"),
    ("VERBATIM_LOG__LEVEL", &["", "loud", "info,loud", "verbatim=loud"], "error, warn, info"),
    ("VERBATIM_LOG__FORMAT", &["xml"], "one of auto, text, json"),
    ("VERBATIM_MODELS__DEVICE", &["gpu"], "one of auto, cpu, cuda, cuda:N"),
    ("VERBATIM_MODELS__COMPUTE_TYPE", &["f64"], "one of auto"),
    ("VERBATIM_LISTEN", &["8000", "localhost:8000"], "an IP address and a port"),
    ("VERBATIM_STATE_DIR", &[""], "not empty"),
    ("VERBATIM_AUTH__ACCEPT_TOKEN_SCHEME", &["maybe"], "true or false"),
];

#[test]
fn a_wrong_value_is_named_with_its_setting_its_source_and_what_may_stand_there() {
    for (variable, values, allowed) in WRONG {
        for value in *values {
            let error = sources(&[(variable, value)]).read().expect_err(variable).to_string();
            let setting = match *variable {
                "VERBATIM_FETCH_ALLOW" => "fetch.allow".to_owned(),
                variable => variable["VERBATIM_".len()..].to_ascii_lowercase().replace("__", "."),
            };
            assert!(error.contains(&format!("`{setting}`")), "{error}");
            assert!(error.contains(variable) && error.contains(allowed), "{error}");
            let first = value.split(',').next().unwrap_or_default();
            assert!(error.contains(first), "{value}: {error}");
        }
    }
}

#[test]
fn a_key_is_asked_for_by_default_and_the_way_of_before_is_named() {
    assert_eq!(sources(&[]).read().expect("defaults").sts.auth, crate::sts::Auth::Required);
    let error = sources(&[("VERBATIM_STS__AUTH", "auto")]).read().expect_err("no such way").to_string();
    for part in ["`sts.auth` = \"auto\"", "VERBATIM_STS__AUTH", "required", "loopback", "off"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn a_secret_may_lie_in_a_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("token");
    std::fs::write(&path, "sesame\n").expect("writable");
    let (path, named) = (path.display().to_string(), format!("file:{}", path.display()));
    let token = |variables: &[(&str, &str)]| {
        let config = sources(variables).read().expect("valid");
        config.sts.twilio.auth_token.expect("a token").expose().to_owned()
    };
    assert_eq!(token(&[("VERBATIM_STS__TWILIO__AUTH_TOKEN_FILE", &path)]), "sesame");
    assert_eq!(token(&[("VERBATIM_STS__TWILIO__AUTH_TOKEN", &named)]), "sesame");
    // The variable itself wins.
    let both = [
        ("VERBATIM_STS__TWILIO__AUTH_TOKEN_FILE", path.as_str()),
        ("VERBATIM_STS__TWILIO__AUTH_TOKEN", "open"),
    ];
    assert_eq!(token(&both), "open");
    let error = sources(&[("DEMO_API_KEY_FILE", "/nowhere/at/all")]).read().expect_err("no file").to_string();
    assert!(error.contains("/nowhere/at/all") && error.contains("demo.api_key"), "{error}");
    std::fs::write(dir.path().join("token"), "\n").expect("writable");
    assert!(sources(&[("DEMO_API_KEY_FILE", &path)]).read().is_err(), "an empty file");
}

#[test]
fn settings_that_need_others_say_which() {
    let error = |variables: &[(&str, &str)]| sources(variables).read().expect_err("incomplete").to_string();
    for (set, missing) in [
        (&[("VERBATIM_STS__TWILIO__ACCOUNT_SID", "AC1")][..], "sts.twilio.auth_token"),
        (&[("VERBATIM_STS__TWILIO__ACCOUNT_SID", "AC1"), ("VERBATIM_STS__TWILIO__FROM", "+1")], "auth_token"),
        (
            &[("VERBATIM_STS__TWILIO__FROM", "+1"), ("VERBATIM_STS__TWILIO__AUTH_TOKEN", "sesame")],
            "sts.twilio.account_sid",
        ),
        (&[("LIVEKIT_URL", "wss://media.example"), ("LIVEKIT_API_KEY", "APIabc")], "sts.livekit.api_secret"),
        (&[("VERBATIM_HTTP__TLS__CERTIFICATE", "c.pem")], "http.tls.key"),
        (&[("VERBATIM_API__FORWARD__KEY_FILE", "k.pem")], "api.forward.certificate_file"),
    ] {
        let error = error(set);
        assert!(error.contains(missing) && error.contains(set[0].0), "{error}");
    }
    assert!(
        sources(&[("VERBATIM_STS__TWILIO__AUTH_TOKEN", "sesame")]).read().is_ok(),
        "signatures are checked"
    );
    let error = error(&[("VERBATIM_HTTP__BUFFERED_BYTES_MAX", "1000")]);
    assert!(error.contains("http.body_bytes_max"), "{error}");
}

#[test]
fn a_secret_that_may_not_stand_is_not_quoted() {
    for variable in ["VERBATIM_JOBS__SECRET", "INTERACTIVE_VOICE_VERIFY_HOOK_API_KEY"] {
        let error = sources(&[(variable, "open\u{7}sesame")]).read().expect_err(variable).to_string();
        assert!(error.contains(variable) && !error.contains("sesame"), "{error}");
    }
    let error =
        sources(&[("HF_ENDPOINT", "ftp://me:sesame@hub.example")]).read().expect_err("ftp").to_string();
    assert!(error.contains("hub.example") && !error.contains("sesame"), "{error}");
}

#[test]
fn a_file_is_named_with_the_line_or_the_key_that_is_wrong() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("verbatim.toml");
    let error = |text: &str| {
        std::fs::write(&path, text).expect("writable");
        let sources = Sources::new(Some(&path), Vec::new(), Vec::new());
        sources.and_then(|sources| sources.read()).expect_err(text).to_string()
    };
    for (text, expected) in [
        ("listen = ", "line 1"),
        ("# one\n[models\nslots = 1", "line 2"),
        ("[models]\nslot = 1", "`models.slot`"),
        ("[modles]\nslots = 1", "`modles`"),
        ("[models]\nslots = \"many\"", "`models.slots` = \"many\""),
        ("models = 3", "a table"),
        ("[http.tls]\ncertificate = \"c.pem\"", "`http.tls.key`"),
    ] {
        let error = error(text);
        assert!(error.contains(expected) && error.contains("verbatim.toml"), "{text}: {error}");
    }
    let error =
        Sources::new(Some(folder.path()), Vec::new(), Vec::new()).err().expect("a folder").to_string();
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn a_settings_own_variable_wins_over_other_names_for_it() {
    let hub = |variables: &[(&str, &str)]| sources(variables).read().expect("right").models.hub;
    assert_eq!(hub(&[("HF_ENDPOINT", "https://m")]).address, "https://m");
    let both = [("VERBATIM_MODELS__HUB__ADDRESS", "https://own"), ("HF_ENDPOINT", "https://m")];
    assert_eq!(hub(&both).address, "https://own");
    assert_eq!(hub(&[("PIP_INDEX_URL", "https://p")]).package_index, "https://p");
    assert_eq!(hub(&[("HF_ENDPOINT", "")]), Default::default());
}

#[test]
fn the_hooks_variables_are_settings_and_its_key_is_shown_to_nobody() {
    let sources = sources(&[
        ("INTERACTIVE_VOICE_VERIFY_HOOK_URL", "http://localhost:9/hook"),
        ("INTERACTIVE_VOICE_VERIFY_HOOK_API_KEY", "sesame"),
        ("INTERACTIVE_VOICE_VERIFY_DISABLE_INLINE", "true"),
    ]);
    let verification = sources.read().expect("right").sts.verification;
    assert_eq!(verification.hook_url.as_deref(), Some("http://localhost:9/hook"));
    assert_eq!(verification.hook_api_key.as_ref().map(|key| key.expose()), Some("sesame"));
    assert!(verification.disable_inline);
    assert!(!format!("{verification:?}").contains("sesame"));
    let shown = sources.describe().expect("right");
    assert!(shown.iter().all(|setting| !setting.value.as_deref().unwrap_or_default().contains("sesame")));
}

#[test]
fn the_media_servers_variables_are_settings_and_its_secret_is_shown_to_nobody() {
    let sources = sources(&[
        ("LIVEKIT_URL", "wss://media.example"),
        ("LIVEKIT_API_KEY", "APIabc"),
        ("LIVEKIT_API_SECRET", "sesame"),
    ]);
    let livekit = sources.read().expect("right").sts.livekit;
    assert_eq!(livekit.url.as_deref(), Some("wss://media.example"));
    assert_eq!(livekit.api_key.as_deref(), Some("APIabc"));
    assert_eq!(livekit.api_secret.as_ref().map(|secret| secret.expose()), Some("sesame"));
    let shown = sources.describe().expect("right");
    assert!(shown.iter().all(|setting| !setting.value.as_deref().unwrap_or_default().contains("sesame")));
}

#[test]
fn the_demos_variables_are_settings_and_its_key_is_shown_to_nobody() {
    let sources = sources(&[
        ("STS_API_BASE_URL", "https://voice.example"),
        ("DEMO_API_KEY", "sesame"),
        ("DEMO_FRONTEND_BASE_URL", "https://pages.example"),
        ("DEMO_WEBSITE_URL", "https://clinic.example"),
        ("DEMO_VOICE_VERIFY_ALLOWED_CATEGORIES", "patient_information, form"),
        ("DEMO_VOICE_VERIFY_REQUIRE_PATIENT_ID", "true"),
    ]);
    let demo = sources.read().expect("right").demo;
    assert_eq!(demo.sts_base_url, "https://voice.example");
    assert_eq!(demo.api_key.as_ref().map(|key| key.expose()), Some("sesame"));
    assert_eq!(demo.frontend_base_url, "https://pages.example");
    assert_eq!(demo.website_url, "https://clinic.example");
    assert_eq!(demo.voice_verify_allowed_categories, ["patient_information", "form"]);
    assert!(demo.voice_verify_require_patient_id);
    assert!(!format!("{demo:?}").contains("sesame"));
    let shown = sources.describe().expect("right");
    assert!(shown.iter().all(|setting| !setting.value.as_deref().unwrap_or_default().contains("sesame")));
}
