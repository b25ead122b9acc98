"""The S3 client and store, against real servers and against a hostile one."""
