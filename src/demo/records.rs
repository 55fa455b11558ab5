//! The demo's records: invented people, or those in a file of the same form.

use std::path::Path;

use serde::Deserialize;
use subtle::{Choice, ConstantTimeEq as _};

use super::digits::digits;
use super::error::Error;

const BUILT_IN: &str = include_str!("records.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Records {
    profiles: Vec<Profile>,
    patients: Vec<Patient>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    /// E.164.
    caller_number: String,
    /// `YYYY-MM-DD`.
    date_of_birth: String,
    ssn_last4: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patient {
    patient_id: String,
    ssn_last4: String,
    /// The link that is sent after verification: an entry of `link_catalog`.
    pub sms_catalog_key: String,
}

/// Credentials that a person gives.
pub struct Credentials<'a> {
    pub ssn_last4: &'a str,
    pub date_of_birth: &'a str,
    /// `None` matches any.
    pub caller_number: Option<&'a str>,
}

/// Every record is compared in full, so that the time taken reveals nothing.
impl Records {
    /// Reads the records in `path`, or the built-in ones.
    ///
    /// # Errors
    /// [`Error::Records`], which quotes none of the records.
    pub fn open(path: Option<&Path>) -> Result<Self, Error> {
        let failed = |problem| Error::Records { path: path.unwrap_or(Path::new("")).to_owned(), problem };
        let text = match path {
            None => BUILT_IN.to_owned(),
            Some(path) => std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?,
        };
        serde_json::from_str(&text).map_err(|error| failed(format!("line {} is no record", error.line())))
    }

    pub fn knows(&self, credentials: &Credentials<'_>) -> bool {
        let is = |profile: &Profile| {
            let number = credentials.caller_number;
            equal(&profile.ssn_last4, credentials.ssn_last4)
                & equal(&profile.date_of_birth, credentials.date_of_birth)
                & number.map_or(Choice::from(1), |number| equal(&profile.caller_number, number))
        };
        self.profiles.iter().fold(Choice::from(0), |known, profile| known | is(profile)).into()
    }

    /// The patient with these four digits, and with this id where one is given.
    pub fn patient(&self, ssn_last4: &str, patient_id: Option<&str>) -> Option<&Patient> {
        self.find(|patient| {
            let id = patient_id.map_or(Choice::from(1), |id| equal(&patient.patient_id, id));
            equal(&patient.ssn_last4, ssn_last4) & id
        })
    }

    /// The patient whose digits `utterance` contains: the four digits alone, unless `needs_id`, or those together with the
    /// digits of the id; and no others.
    pub fn speaker(&self, utterance: &str, needs_id: bool) -> Option<&Patient> {
        let said = digits(utterance);
        let alone = Choice::from(u8::from(!needs_id));
        self.find(|patient| {
            let (id, ssn) = (digits(&patient.patient_id), &patient.ssn_last4);
            let both = equal(&format!("{id}{ssn}"), &said) | equal(&format!("{ssn}{id}"), &said);
            let has_id = Choice::from(u8::from(!id.is_empty()));
            (equal(ssn, &said) & alone) | (both & has_id)
        })
    }

    fn find(&self, is: impl Fn(&Patient) -> Choice) -> Option<&Patient> {
        let mut found = None;
        for patient in &self.patients {
            if is(patient).into() {
                found = Some(patient);
            }
        }
        found
    }
}

fn equal(known: &str, given: &str) -> Choice {
    known.as_bytes().ct_eq(given.as_bytes())
}
