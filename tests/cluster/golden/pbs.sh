#!/usr/bin/env bash

#PBS -N dask-worker
#PBS -q long
#PBS -A vectors
#PBS -l select=1:ncpus=2:mem=16GB
#PBS -l walltime=04:00:00
#PBS -r y
module load python
/opt/bitfleet/bin/python -m distributed.cli.dask_worker tls://HEAD:PORT --name dummy-name --nthreads 2 --memory-limit 16.00GiB --nanny --death-timeout 60 --dashboard-address 127.0.0.1:0 --protocol tls:// --tls-ca-file FILE --tls-cert FILE --tls-key FILE
