"""Attribution of a failed conversion: to the file, an option, an op pack or the converter.

Only entry points call it.
"""
