# docker build -t coordd .
# The node's options are variables (docs/operations.md), as in deploy/compose/compose.yaml: the health
# check reads the same.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/coordd ./cmd/coordd \
	&& mkdir /out/data

FROM scratch
COPY --from=build /out/coordd /coordd
# authorities for backups to S3, OTLP and rediss:// of others
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build --chown=65532:65532 --chmod=700 /out/data /var/lib/coordd
USER 65532:65532
WORKDIR /var/lib/coordd
VOLUME /var/lib/coordd
ENV COORDD_DATA_DIR=/var/lib/coordd \
	COORDD_LISTEN=0.0.0.0:6379 \
	COORDD_HTTP_LISTEN=0.0.0.0:8080
EXPOSE 6379 7000 8080
HEALTHCHECK --interval=5s --timeout=6s --start-period=30s CMD ["/coordd", "health"]
ENTRYPOINT ["/coordd"]
