//! Names of voices that clients know from hosted interfaces, and the installed voice that speaks for each.
//!
//! An installed voice answers to its own name. Another name is looked up in the tables below, which say whether its
//! owner sounds like a woman or a man, and with which accent. The first of these speaks:
//!
//! 1. an installed voice of the same given name: `af_nova` for `nova`,
//! 2. the voice that the configuration names, if gender and accent fit,
//! 3. an installed voice that fits in both, or in gender,
//! 4. the voice that the configuration names.
//!
//! Kokoro's names say as much of its voices: `bm_george` is British, male and George.

/// How a voice sounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sound {
    is_british: bool,
    is_male: bool,
}

const WOMAN: Sound = Sound { is_british: false, is_male: false };
const MAN: Sound = Sound { is_british: false, is_male: true };
const BRITISH_WOMAN: Sound = Sound { is_british: true, is_male: false };
const BRITISH_MAN: Sound = Sound { is_british: true, is_male: true };

/// The English voices of the wire format, `aura-…-en` and `aura-2-…-en`, by given name. Accents that are neither
/// American nor British count as American.
const AURA: [(&str, Sound); 45] = [
    ("amalthea", WOMAN),
    ("andromeda", WOMAN),
    ("angus", MAN),
    ("apollo", MAN),
    ("arcas", MAN),
    ("aries", MAN),
    ("asteria", WOMAN),
    ("athena", WOMAN),
    ("atlas", MAN),
    ("aurora", WOMAN),
    ("callista", WOMAN),
    ("cora", WOMAN),
    ("cordelia", WOMAN),
    ("delia", WOMAN),
    ("draco", BRITISH_MAN),
    ("electra", WOMAN),
    ("harmonia", WOMAN),
    ("helena", WOMAN),
    ("helios", BRITISH_MAN),
    ("hera", WOMAN),
    ("hermes", MAN),
    ("hyperion", MAN),
    ("iris", WOMAN),
    ("janus", WOMAN),
    ("juno", WOMAN),
    ("jupiter", MAN),
    ("luna", WOMAN),
    ("mars", MAN),
    ("minerva", WOMAN),
    ("neptune", MAN),
    ("odysseus", MAN),
    ("ophelia", WOMAN),
    ("orion", MAN),
    ("orpheus", MAN),
    ("pandora", BRITISH_WOMAN),
    ("perseus", MAN),
    ("phoebe", WOMAN),
    ("pluto", MAN),
    ("saturn", MAN),
    ("selene", WOMAN),
    ("stella", WOMAN),
    ("thalia", WOMAN),
    ("theia", WOMAN),
    ("vesta", WOMAN),
    ("zeus", MAN),
];

/// The voices of OpenAI's speech interface.
const OPENAI: [(&str, Sound); 13] = [
    ("alloy", WOMAN),
    ("ash", MAN),
    ("ballad", BRITISH_MAN),
    ("cedar", MAN),
    ("coral", WOMAN),
    ("echo", MAN),
    ("fable", BRITISH_MAN),
    ("marin", WOMAN),
    ("nova", WOMAN),
    ("onyx", MAN),
    ("sage", WOMAN),
    ("shimmer", WOMAN),
    ("verse", MAN),
];

/// The installed voice for `name`; `installed` has the configured one first. `None`: nobody is called that.
pub fn find<'v>(name: &str, installed: &[&'v str]) -> Option<&'v str> {
    let name = name.to_ascii_lowercase();
    let own = name.strip_prefix("kokoro-").unwrap_or(&name);
    if let Some(voice) = installed.iter().find(|voice| voice.eq_ignore_ascii_case(own)) {
        return Some(voice);
    }
    // The names of the newer voices say nothing of how they sound.
    if let Some(given) = name.strip_prefix("flux-").and_then(|rest| rest.strip_suffix("-en")) {
        let own = installed
            .iter()
            .copied()
            .find(|voice| voice.split_once('_').is_some_and(|(_, own)| own == given));
        return own.or_else(|| installed.first().copied());
    }
    let aura = name.strip_prefix("aura-").and_then(|rest| rest.strip_suffix("-en"));
    let (given, sound) = match aura.map(|rest| rest.strip_prefix("2-").unwrap_or(rest)) {
        Some(given) => *AURA.iter().find(|(known, _)| *known == given)?,
        None => *OPENAI.iter().find(|(known, _)| *known == name)?,
    };
    let first = |fits: &dyn Fn(&str) -> bool| installed.iter().copied().find(|voice| fits(voice));
    first(&|voice| voice.split_once('_').is_some_and(|(_, own)| own == given))
        .or_else(|| first(&|voice| sound_of(voice) == Some(sound)))
        .or_else(|| first(&|voice| sound_of(voice).is_some_and(|own| own.is_male == sound.is_male)))
        .or_else(|| installed.first().copied())
}

/// How an installed voice sounds, if its name says so.
fn sound_of(voice: &str) -> Option<Sound> {
    let (prefix, _) = voice.split_once('_')?;
    let (is_british, is_male) = match prefix {
        "af" => (false, false),
        "am" => (false, true),
        "bf" => (true, false),
        "bm" => (true, true),
        _ => return None,
    };
    Some(Sound { is_british, is_male })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_name_has_a_voice_that_fits() {
        let installed = ["af_heart", "af_nova", "am_michael", "bm_george"];
        for (name, voice) in [
            ("af_heart", Some("af_heart")),
            ("AM_Michael", Some("am_michael")),
            ("kokoro-bm_george", Some("bm_george")),
            ("aura-2-thalia-en", Some("af_heart")),
            ("aura-asteria-en", Some("af_heart")),
            ("aura-zeus-en", Some("am_michael")),
            ("aura-2-draco-en", Some("bm_george")),
            ("aura-2-pandora-en", Some("af_heart")),
            ("nova", Some("af_nova")),
            ("onyx", Some("am_michael")),
            ("fable", Some("bm_george")),
            ("flux-alexis-en", Some("af_heart")),
            ("flux-george-en", Some("bm_george")),
            ("flux-alexis-de", None),
            ("aura-2-nobody-en", None),
            // It would read Spanish as if it were English.
            ("aura-2-celeste-es", None),
            ("thalia", None),
            ("", None),
        ] {
            assert_eq!(find(name, &installed), voice, "{name}");
        }
    }

    #[test]
    fn a_voice_alone_speaks_for_all() {
        assert_eq!(find("aura-2-zeus-en", &["flite"]), Some("flite"));
        assert_eq!(find("alloy", &["flite"]), Some("flite"));
        assert_eq!(find("aura-2-zeus-en", &[]), None);
    }
}
