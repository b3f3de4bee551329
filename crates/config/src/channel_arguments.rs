//! `--grpc_channel_arguments`: settings of gRPC connections, as `key=value` pairs with commas
//! between them.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// The settings that mean something here. Others are accepted, as gRPC does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChannelArguments {
    /// The age at which a connection is told to end.
    pub connection_age: Option<Duration>,
    /// The time that the requests of an ending connection are then given.
    pub connection_age_grace: Option<Duration>,
    /// The interval at which a silent connection is pinged.
    pub keepalive_interval: Option<Duration>,
    /// The longest time that the answer to a ping may take.
    pub keepalive_timeout: Option<Duration>,
    /// The number of calls of one connection that run at once.
    pub streams_max: Option<u32>,
    /// The most bytes of a message.
    pub message_bytes_max: Option<usize>,
    /// The most bytes of a call's headers.
    pub header_bytes_max: Option<u32>,
}

/// Reads the flag, and names the keys that change nothing.
pub fn parse(text: &str) -> Result<(ChannelArguments, Vec<String>)> {
    let mut arguments = ChannelArguments::default();
    let mut ignored = Vec::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .with_context(|| format!("--grpc_channel_arguments: {pair} is no key=value"))?;
        // Below zero means without limit, as for gRPC.
        let number = value.trim().parse::<i32>().ok().and_then(|value| u32::try_from(value).ok());
        let time = number.map(|number| Duration::from_millis(number.into()));
        match key.trim() {
            "grpc.max_connection_age_ms" => arguments.connection_age = time,
            "grpc.max_connection_age_grace_ms" => arguments.connection_age_grace = time,
            "grpc.keepalive_time_ms" => arguments.keepalive_interval = time,
            "grpc.keepalive_timeout_ms" => arguments.keepalive_timeout = time,
            "grpc.max_concurrent_streams" => arguments.streams_max = number,
            "grpc.max_receive_message_length" => {
                arguments.message_bytes_max = number.and_then(|number| number.try_into().ok());
            }
            "grpc.max_metadata_size" => arguments.header_bytes_max = number,
            other => ignored.push(other.to_owned()),
        }
    }
    Ok((arguments, ignored))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_arguments_are_taken_and_others_named() {
        let text = "grpc.max_connection_age_ms=2000,grpc.lb_policy_name=grpclb,\
                    grpc.so_reuseaddr=1,grpc.max_receive_message_length=-1";
        let (arguments, ignored) = parse(text).unwrap();
        let connection_age = Some(Duration::from_secs(2));
        assert_eq!(arguments, ChannelArguments { connection_age, ..ChannelArguments::default() });
        assert_eq!(ignored, ["grpc.lb_policy_name", "grpc.so_reuseaddr"]);
        assert_eq!(parse("").unwrap(), (ChannelArguments::default(), Vec::new()));
    }

    #[test]
    fn an_argument_without_a_value_is_refused() {
        let error = parse("grpc.so_reuseaddr").unwrap_err();
        assert!(error.to_string().contains("grpc.so_reuseaddr is no key=value"));
    }
}
