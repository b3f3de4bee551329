//! A status as gRPC sends it.

use status::Status;

/// The status as tonic sends it, with the time after which clients with a retry policy try again.
pub(crate) fn to_tonic(status: &Status) -> tonic::Status {
    let code = tonic::Code::from_i32(status.code.number());
    let mut sent = tonic::Status::new(code, status.grpc_message());
    if let Some(millis) = status.retry_pushback_millis() {
        let millis = millis.to_string().parse().expect("digits are a header");
        sent.metadata_mut().insert("grpc-retry-pushback-ms", millis);
    }
    sent
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use status::Code;

    use super::*;

    #[test]
    fn a_busy_server_says_when_to_try_again() {
        let after = Some(Duration::from_millis(30));
        let sent = to_tonic(&Status::unavailable("full").with_retry_after(after));
        assert_eq!((sent.code(), sent.message()), (tonic::Code::Unavailable, "full"));
        assert_eq!(sent.metadata().get("grpc-retry-pushback-ms").unwrap(), "30");
    }

    #[test]
    fn tonic_knows_every_code_by_its_number() {
        for code in Code::ALL {
            let sent = to_tonic(&Status::new(code, ""));
            assert_eq!(format!("{:?}", sent.code()), format!("{code:?}"));
        }
    }
}
