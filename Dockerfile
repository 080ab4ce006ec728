# There are two images. Each has one static binary and the licences of its modules. (It has no CA
# certificates: the program's kubeconfig or ServiceAccount has the CA.)
#
#   docker build --target reporter .
#   docker build --target operator .
#
# GO_IMAGE is any image with the version of Go in go.mod. For a reproducible build, name it by its
# digest and set SOURCE_DATE_EPOCH.
ARG GO_IMAGE=golang:1.26

FROM ${GO_IMAGE} AS source
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .

FROM source AS build-reporter
ARG TARGETOS=linux
ARG TARGETARCH
ARG VERSION=unknown
# The flags of `make build`.
RUN export CGO_ENABLED=0 GOFIPS140=v1.0.0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} && \
    go build -trimpath -buildvcs=false -tags grpcnotrace,nethttpomithttp2 -ldflags "-s -w -X github.com/kms-health/kms-health/pkg/version.Version=${VERSION}" \
    -o /out/kms-health-reporter ./cmd/kms-health-reporter && \
    sh test/tools/licenses.sh -tags grpcnotrace,nethttpomithttp2 ./cmd/kms-health-reporter >/out/kms-health-reporter.licenses

FROM source AS build-operator
ARG TARGETOS=linux
ARG TARGETARCH
ARG VERSION=unknown
RUN export CGO_ENABLED=0 GOFIPS140=v1.0.0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} && \
    go build -trimpath -buildvcs=false -tags grpcnotrace,nethttpomithttp2 -ldflags "-s -w -X github.com/kms-health/kms-health/pkg/version.Version=${VERSION}" \
    -o /out/kms-health-operator ./cmd/kms-health-operator && \
    sh test/tools/licenses.sh -tags grpcnotrace,nethttpomithttp2 ./cmd/kms-health-operator >/out/kms-health-operator.licenses

# Each program has a target. The last one is the default.
FROM scratch AS operator
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="kms-health-operator" \
      org.opencontainers.image.description="Brings a reporter to every KMS plugin of a cluster's API servers" \
      org.opencontainers.image.source="https://github.com/kms-health/kms-health" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build-operator /out/kms-health-operator /kms-health-operator
COPY --from=build-operator /out/kms-health-operator.licenses /licenses/THIRD_PARTY_LICENSES
COPY LICENSE /licenses/LICENSE
USER 65532:65532
ENTRYPOINT ["/kms-health-operator"]

FROM scratch AS reporter
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="kms-health-reporter" \
      org.opencontainers.image.description="Probes the KMS plugins beside a Kubernetes API server and reports their health" \
      org.opencontainers.image.source="https://github.com/kms-health/kms-health" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build-reporter /out/kms-health-reporter /kms-health-reporter
COPY --from=build-reporter /out/kms-health-reporter.licenses /licenses/THIRD_PARTY_LICENSES
COPY LICENSE /licenses/LICENSE
USER 65532:65532
ENTRYPOINT ["/kms-health-reporter"]
