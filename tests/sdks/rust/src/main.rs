//! The `deepgram` crate against another address, with nothing changed but that address and the key.
//! Environment and output as of ../client.py.

use std::env::var;

use deepgram::Deepgram;
use deepgram::common::audio_source::AudioSource;
use deepgram::common::batch_response::Response;
use deepgram::common::options::{Model, Options};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

fn heard(response: &Response) -> Value {
    let alternative = &response.results.channels[0].alternatives[0];
    let utterances = response.results.utterances.iter().flatten();
    json!({
        "transcript": alternative.transcript,
        "words": alternative.words.iter().map(|word| json!([word.word, word.start, word.end])).collect::<Vec<_>>(),
        "utterances": utterances.map(|utterance| &utterance.transcript).collect::<Vec<_>>(),
        "request_id": response.metadata.request_id.to_string(),
    })
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let client = Deepgram::with_base_url_and_api_key(var("SERVER")?.as_str(), var("KEY")?)?;
    let rest = client.transcription();
    let bytes = std::fs::read(var("AUDIO")?)?;
    let audio = || AudioSource::from_buffer(bytes.clone());
    let smart = Options::builder().model(Model::Nova3).smart_format(true).build();
    let plain = Options::builder().build();
    let utterances = Options::builder().utterances(true).build();
    let url = AudioSource::from_url(var("URL")?);
    let callback = rest.prerecorded_callback(audio(), &plain, &var("CALLBACK")?).await?;
    let told = json!({
        "bytes": heard(&rest.prerecorded(audio(), &smart).await?),
        "url": heard(&rest.prerecorded(url, &plain).await?),
        "utterances": heard(&rest.prerecorded(audio(), &utterances).await?),
        "callback": callback.request_id.to_string(),
    });
    println!("{told}");
    Ok(())
}
