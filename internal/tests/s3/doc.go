// Package s3 is a small S3 store over HTTP for tests, which checks the signatures of version 4.
package s3
