# The managers on a cluster (`conductor install --image NAME`):
#   cargo build --release && docker build -t NAME .
FROM debian:stable-slim
COPY target/release/conductor /usr/local/bin/conductor
USER 65532:65532
ENTRYPOINT ["conductor"]
