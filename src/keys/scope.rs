//! The permissions of a key, in the wire format's words.
//!
//! A scope is a permission (`usage:write`) or a role (`member`), which stands for a list of permissions
//! (<https://developers.deepgram.com/docs/working-with-roles>). A permission implies no other one: a key of
//! `usage:write` transcribes and does not read the log of requests.

/// All words, permissions first. The place of a word is its bit in [`Scopes`]; on disk, scopes are words, so
/// that the order may change.
pub const WORDS: [&str; 34] = [
    "project:read",
    "project:write",
    "project:write:settings",
    "project:write:destroy",
    "keys:read",
    "keys:write",
    "members:read",
    "members:read:invites",
    "members:read:scopes",
    "members:write",
    "members:write:invites",
    "members:write:scopes",
    "members:write:kick",
    "admins:read",
    "admins:read:invites",
    "admins:read:scopes",
    "admins:write",
    "admins:write:invites",
    "admins:write:scopes",
    "admins:write:kick",
    "owners:read",
    "owners:read:invites",
    "owners:read:scopes",
    "owners:write",
    "owners:write:invites",
    "owners:write:scopes",
    "owners:write:kick",
    "usage:read",
    "usage:write",
    "billing:read",
    "billing:write",
    MEMBER,
    ADMIN,
    OWNER,
];

const MEMBER: &str = "member";
const ADMIN: &str = "admin";
const OWNER: &str = "owner";

/// The words that `owner` stands for and `admin` does not.
const OWNERS_ALONE: [&str; 7] = [
    "project:write:settings",
    "project:write:destroy",
    "owners:write",
    "owners:write:invites",
    "owners:write:scopes",
    "owners:write:kick",
    "billing:write",
];
/// The words that `member` stands for.
const MEMBERS: [&str; 6] =
    ["project:read", "project:write", "keys:read", "keys:write", "usage:read", "usage:write"];

/// A permission that an endpoint asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// To use the server: transcribe, speak, converse.
    UsageWrite,
    /// To read the log of requests and its sums.
    UsageRead,
    KeysRead,
    KeysWrite,
    ProjectRead,
    ProjectWrite,
    MembersRead,
    MembersWrite,
    BillingRead,
}

impl Permission {
    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UsageWrite => "usage:write",
            Self::UsageRead => "usage:read",
            Self::KeysRead => "keys:read",
            Self::KeysWrite => "keys:write",
            Self::ProjectRead => "project:read",
            Self::ProjectWrite => "project:write",
            Self::MembersRead => "members:read",
            Self::MembersWrite => "members:write",
            Self::BillingRead => "billing:read",
        }
    }
}

/// Words that are no scopes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scope; the scopes are {list}", list = WORDS.join(", "))]
pub struct UnknownScope(String);

/// A set of scopes, as they were given: a role stays a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u64);

impl Scopes {
    /// No permission at all.
    pub const NONE: Self = Self(0);

    /// Those of a key that was made without any: it uses the server and sees what it used. Keys
    /// created before scopes existed have them too.
    pub fn of_a_client() -> Self {
        bits(&["project:read", "usage:read", "usage:write"])
    }

    /// Those of a token: it uses the server.
    pub fn of_a_token() -> Self {
        bits(&["usage:write"])
    }

    /// Everything.
    pub fn of_an_owner() -> Self {
        bits(&[OWNER])
    }

    /// The scopes of these words; empty words are left out.
    ///
    /// # Errors
    /// [`UnknownScope`] with the first word that is none. It is shortened, as it may be anything.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownScope> {
        const SHOWN_CHARACTERS: usize = 40;
        let mut scopes = Self::NONE;
        for word in words.into_iter().map(str::trim).filter(|word| !word.is_empty()) {
            let at = WORDS.iter().position(|known| *known == word);
            let at = at.ok_or_else(|| UnknownScope(word.chars().take(SHOWN_CHARACTERS).collect()))?;
            scopes.0 |= 1 << at;
        }
        Ok(scopes)
    }

    /// Of the words in the database, those that this program knows: an unknown one grants nothing.
    pub(super) fn from_stored(text: &str) -> Self {
        let known = text.split(' ').filter(|word| WORDS.contains(word));
        Self::parse(known).unwrap_or_default()
    }

    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub fn allow(self, permission: Permission) -> bool {
        self.implied().0 & bits(&[permission.name()]).0 != 0
    }

    /// Whether all permissions of `others` are among these.
    pub fn cover(self, others: Self) -> bool {
        others.implied().0 & !self.implied().0 == 0
    }

    /// The permissions that both allow.
    pub fn and(self, others: Self) -> Self {
        Self(self.implied().0 & others.implied().0)
    }

    /// The words, as they were given.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        WORDS.into_iter().enumerate().filter(move |(at, _)| self.0 & 1 << at != 0).map(|(_, word)| word)
    }

    /// The words with a space between.
    pub(super) fn stored(self) -> String {
        self.words().collect::<Vec<_>>().join(" ")
    }

    /// With roles replaced by what they stand for.
    fn implied(self) -> Self {
        let roles = bits(&[MEMBER, ADMIN, OWNER]).0;
        let all = ((1 << WORDS.len()) - 1) & !roles;
        let mut permissions = self.0 & !roles;
        for word in self.words() {
            permissions |= match word {
                OWNER => all,
                ADMIN => all & !bits(&OWNERS_ALONE).0,
                MEMBER => bits(&MEMBERS).0,
                _ => 0,
            };
        }
        Self(permissions)
    }
}

/// The set of words that are known to be scopes.
fn bits(words: &[&str]) -> Scopes {
    let places = WORDS.iter().enumerate().filter(|(_, word)| words.contains(word));
    Scopes(places.fold(0, |bits, (at, _)| bits | 1 << at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_stand_for_their_permissions() {
        let scopes = |words: &str| Scopes::parse(words.split(' ')).unwrap();
        for (words, allowed, refused) in [
            ("usage:write", vec![Permission::UsageWrite], vec![Permission::UsageRead, Permission::KeysRead]),
            ("keys:write", vec![Permission::KeysWrite], vec![Permission::KeysRead, Permission::UsageWrite]),
            (
                "member",
                vec![Permission::UsageWrite, Permission::KeysWrite, Permission::ProjectRead],
                vec![Permission::MembersRead, Permission::BillingRead],
            ),
            ("admin", vec![Permission::MembersWrite, Permission::BillingRead], vec![]),
            ("owner", vec![Permission::MembersWrite, Permission::BillingRead], vec![]),
            ("", vec![], vec![Permission::UsageWrite, Permission::ProjectRead]),
        ] {
            for permission in allowed {
                assert!(scopes(words).allow(permission), "{words} {permission:?}");
            }
            for permission in refused {
                assert!(!scopes(words).allow(permission), "{words} {permission:?}");
            }
        }
        assert!(scopes("owner").cover(scopes("admin")) && !scopes("admin").cover(scopes("owner")));
        assert!(
            scopes("member").cover(Scopes::of_a_client()) && !scopes("usage:write").cover(scopes("member"))
        );
        assert_eq!(
            scopes("member").and(scopes("usage:write keys:read billing:read")),
            scopes("usage:write keys:read")
        );
    }

    #[test]
    fn words_survive_the_database() {
        for word in WORDS {
            let scopes = Scopes::parse([word]).unwrap();
            assert_eq!(Scopes::from_stored(&scopes.stored()), scopes, "{word}");
            assert_eq!(scopes.words().collect::<Vec<_>>(), [word]);
        }
        assert_eq!(Scopes::from_stored("usage:write of-the-future"), Scopes::of_a_token());
        assert_eq!(Scopes::from_stored(""), Scopes::NONE);
        assert!(Scopes::parse(["usage"]).is_err());
        let all = |list: &[&str]| list.iter().all(|word| WORDS.contains(word));
        assert!(all(&MEMBERS) && all(&OWNERS_ALONE));
    }
}
