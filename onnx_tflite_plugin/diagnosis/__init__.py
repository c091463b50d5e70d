"""Attribution of failures: to the file, an option, an op pack or the converter."""
