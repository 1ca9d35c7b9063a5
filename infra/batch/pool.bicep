// A pool of Azure Batch on spot nodes for the workers of a service.
//
//   az deployment group create --resource-group GROUP --template-file infra/batch/pool.bicep --parameters ...
//   az batch job create --account-name ACCOUNT --account-endpoint ENDPOINT --id swathmill-workers --pool-id swathmill
//
// Then `swathmill fleet batch:FILE`, with a file like infra/batch/worker.json and SWATHMILL_SCALE_IN_SECONDS set for the
// manager. A job is no resource of Azure's manager, so it is made by the second command.
targetScope = 'resourceGroup'

@description('Region of the nodes.')
param location string = resourceGroup().location

@description('Short name of the service, as deployed by infra/bicep/main.bicep in this group.')
param name string = 'swathmill'

@description('Batch account in this group; it is made here.')
@minLength(3)
@maxLength(24)
param account string

@description('Image of the service, as deployed: nodes fetch it before their first task.')
@minLength(1)
param image string

@description('Registry of the image; empty: the image is public.')
param registryServer string = ''

@description('Subnet of the nodes: it reaches the service and its private ends, and has a way out for granules.')
param subnetId string

@description('Size of a node; each runs one worker.')
param size string = 'Standard_D2as_v5'

@description('Most nodes.')
@minValue(1)
param most int = 200

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' existing = {
  name: '${name}-worker-id'
}

resource batch 'Microsoft.Batch/batchAccounts@2024-07-01' = {
  // checkov:skip=CKV_AZURE_76: nothing of the service lies in the account
  // checkov:skip=CKV_AZURE_248: the command runs where its user is, and signs in with Microsoft Entra
  name: account
  location: location
  properties: {
    poolAllocationMode: 'BatchService'
    allowedAuthenticationModes: [
      'AAD'
    ]
  }
}

resource pool 'Microsoft.Batch/batchAccounts/pools@2024-07-01' = {
  parent: batch
  name: name
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identity.id}': {}
    }
  }
  properties: {
    vmSize: size
    taskSlotsPerNode: 1
    targetNodeCommunicationMode: 'Simplified'
    deploymentConfiguration: {
      virtualMachineConfiguration: {
        imageReference: {
          publisher: 'microsoft-dsvm'
          offer: 'ubuntu-hpc'
          sku: '2204'
          version: 'latest'
        }
        nodeAgentSkuId: 'batch.node.ubuntu 22.04'
        containerConfiguration: {
          type: 'DockerCompatible'
          containerImageNames: [
            image
          ]
          containerRegistries: empty(registryServer) ? [] : [
            {
              registryServer: registryServer
              identityReference: {
                resourceId: identity.id
              }
            }
          ]
        }
      }
    }
    networkConfiguration: {
      subnetId: subnetId
      publicIPAddressConfiguration: {
        provision: 'NoPublicIPAddresses'
      }
    }
    // A node for each task, and none is taken before its task has ended.
    scaleSettings: {
      autoScale: {
        evaluationInterval: 'PT5M'
        formula: '$TargetDedicatedNodes = 0; $TargetLowPriorityNodes = min(${most}, max($PendingTasks.GetSample(1))); $NodeDeallocationOption = taskcompletion;'
      }
    }
  }
}

output accountEndpoint string = 'https://${batch.properties.accountEndpoint}'
output poolId string = pool.name
