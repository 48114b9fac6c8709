"""A course on disk and in nbgrader's gradebook.

`folders` names its places, `roster` who is in it, `collect` takes submissions in, `assignments` knows their
masters; `gradebook` enters results, `marks` reads them back, `pseudonyms` hides whose they are.
"""
