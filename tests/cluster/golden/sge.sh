#!/usr/bin/env bash

#$ -N dask-worker
#$ -q long
#$ -P vectors
#$ -l h_rt=04:00:00
#$ -cwd
#$ -j y
#$ -r y
module load python
/opt/bitfleet/bin/python -m distributed.cli.dask_worker tls://HEAD:PORT --name dummy-name --nthreads 2 --memory-limit 16.00GiB --nanny --death-timeout 60 --dashboard-address 127.0.0.1:0 --protocol tls:// --tls-ca-file FILE --tls-cert FILE --tls-key FILE
