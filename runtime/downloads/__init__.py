"""Getting a model onto the disk, from a repository's listing to a verified folder. No torch.

1. `hub` lists the repository at one commit: names, sizes, hashes.
2. `file_names` decides which files the runtime needs and refuses names that could leave the folder.
3. `places` says where things lie: the finished folder, and a staging folder that no other part ever looks into.
4. `manifest` is what must be there; it lies beside the files, so that verifying needs no network.
5. `connection` asks for bytes from an offset on; `part_file` appends them and hashes as they arrive.
6. `file_fetch` does both for one file, with retries, until its hash is right.
7. `download` runs several of those under one lock per model, and renames the staging folder when all are there.
8. `verify` reads everything again, names what is bad and fetches only that.
"""
